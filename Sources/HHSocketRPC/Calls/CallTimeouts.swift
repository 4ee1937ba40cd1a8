// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// The errors of calls whose time is up, from the state of their attempts and connections. On the socket thread.
struct CallTimeouts {
    private let configuration: ClientConfiguration
    private let driver: any ConnectionDriver
    private let links: ClientLinks

    init(_ configuration: ClientConfiguration, driver: any ConnectionDriver, links: ClientLinks) {
        self.configuration = configuration
        self.driver = driver
        self.links = links
    }

    func error(of attempt: CallAttempt, by limit: TimeLimit, for engine: CallEngine) -> SocketError {
        let flight = attempt.flight
        let request = flight.request
        let options = flight.originalRequest.options
        switch limit {
        case .deadline:
            return CallErrors.timedOut(
                CallErrors.Timeout(
                    type: request.type,
                    stage: self.stage(of: attempt, request, in: engine),
                    limit: options.deadline == flight.state.deadline
                        ? .deadline : .timeout(options.timeout ?? self.configuration.timeout),
                    serial: attempt.serial,
                    attempts: attempt.count,
                    lastFailure: flight.state.lastFailure,
                    lastConnect: self.driver.lastError,
                    server: attempt.serial == nil ? nil : self.links.endpoint(of: attempt.connection),
                    currentServer: self.driver.currentEndpoint,
                    silence: self.silence(of: attempt)
                )
            )
        case .firstResponse:
            return CallErrors.firstResponseTimedOut(
                request.type,
                serial: attempt.serial,
                after: request.options.firstResponseTimeout ?? self.configuration.firstResponseTimeout ?? .zero,
                at: self.links.endpoint(of: attempt.connection),
                silence: self.silence(of: attempt)
            )
        }
    }

    private func stage(
        of attempt: CallAttempt,
        _ request: SocketRequest,
        in engine: CallEngine
    ) -> CallErrors.Timeout.Stage {
        let progress = attempt.flight.state.progress
        return switch attempt.phase {
        case .waiting: .waiting(succeeds: engine.hot.table.link == .goingAway)
        case .queued: .queued
        case .sent:
            .sent(
                CallErrors.Timeout.Progress(
                    length: request.body.readableBytes,
                    sent: progress.sent,
                    received: progress.received,
                    expected: progress.expected
                )
            )
        case .backingOff: .backingOff
        case .idle: engine.interception.isRunning(attempt.key) ? .intercepted : .parked
        }
    }

    /// A description of the connection of an attempt, if it has brought no frame.
    private func silence(of attempt: CallAttempt) -> String {
        guard attempt.phase == .sent else { return "" }
        return CallErrors.silence(
            self.links.connection(attempt.connection)?.link.silence,
            in: self.configuration.socket.wireFormat
        )
    }
}
