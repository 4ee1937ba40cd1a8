// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// The errors of calls that fail on this side. Messages describe what failed, where, why, and what to do.
extension ClientCore {
    func refused(_ refusal: CallTable.Refusal) -> SocketError {
        switch refusal {
        case .offline:
            self.driver.notConnected()
        case .tooManyInFlight:
            SocketError(
                .tooManyInFlight,
                message: """
                    \(self.hot.table.inFlightCount) calls to \(self.place) are in flight already (maximumInFlight); wait for \
                    some to complete
                    """,
                endpoint: self.driver.currentEndpoint
            )
        case .queueFull:
            SocketError(
                .queueFull,
                message: """
                    \(self.hot.table.waitingCount) calls, \(self.hot.table.waitingBytes) bytes, wait for a connection to \
                    \(self.place) already (maximumWaiting, maximumWaitingBytes)
                    """,
                endpoint: self.driver.currentEndpoint
            )
        }
    }

    /// The error of a call beyond `maximumInFlight` and `maximumWaiting` together.
    func tooManyCalls() -> SocketError {
        SocketError(
            .queueFull,
            message: """
                \(self.hot.table.count) calls have not completed yet (maximumInFlight and maximumWaiting together), those included \
                whose interceptors are at work or that wait to be sent again
                """,
            endpoint: self.driver.currentEndpoint
        )
    }

    private var place: String { self.driver.currentEndpoint.map { "\($0)" } ?? "the server" }

    func timedOut(_ attempt: Attempt) -> SocketError {
        let task = attempt.call
        let request = self.request(of: task)
        let lastFailure = task.flight.lastFailure
        // If the request was sent, the server of that connection did not answer, even if there is another connection
        // now.
        let left = attempt.serial == nil ? nil : self.endpoint(of: attempt.connection)
        let lastConnect = self.driver.lastError
        let place = left.map { "\($0)" } ?? self.place
        let what =
            switch attempt.phase {
            case .waiting where self.hot.table.link == .goingAway:
                "no successor of the connection to \(place), which ends,"
            case .waiting: "no connection to \(place)"
            case .queued: "\(place) did not read"
            case .sent: "no answer from \(place)\(self.progress(of: task, request))"
            case .backingOff: "every attempt failed, and the next was still to come,"
            case .idle where task.flight.interception == nil: "its body was being compressed or decompressed, and"
            case .idle: "an interceptor was running, and did not return"
            }
        let serial = attempt.serial.map { ", serial \($0)" } ?? ""
        var causes = self.silence(of: attempt)
        if let lastFailure { causes += "; the attempt before (of \(attempt.count)): \(lastFailure.message)" }
        if let lastConnect { causes += "; the last connect error: \(lastConnect.message)" }
        let timeout = task.originalRequest.options.timeout ?? self.configuration.timeout
        let isDeadline = task.originalRequest.options.deadline == task.flight.deadline
        let limit = isDeadline ? "before the request's deadline" : "within \(timeout)"
        return SocketError(
            .timeout,
            message: "\(what) \(limit) (type \(request.type)\(serial))\(causes)",
            underlying: lastConnect ?? lastFailure,
            endpoint: left ?? self.driver.currentEndpoint ?? lastConnect?.endpoint,
            serial: attempt.serial,
            delivery: attempt.phase == .sent ? .sentUnknown : .notSent
        )
    }

    /// The bytes of a connection that has brought no frame: the description of its frames may be wrong.
    private func silence(of attempt: Attempt) -> String {
        guard attempt.phase == .sent, let silence = self.connection(attempt.connection)?.link.silence else { return "" }
        let advice = self.format == .standard ? "" : "; is the wire format \(self.format) the server's?"
        return "; \(silence)\(advice)"
    }

    /// A description of the progress of an attempt that was sent.
    private func progress(of task: SocketTask, _ request: SocketRequest) -> String {
        let length = request.body.readableBytes
        let sent = task.countOfBytesSent
        if sent < length { return ", \(sent) of whose \(length) bytes had left," }
        let received = task.countOfBytesReceived
        guard received > 0 || task.countOfBytesExpectedToReceive != nil else { return "" }
        return ", which had come to \(received) of \(task.countOfBytesExpectedToReceive ?? received) bytes,"
    }

    func firstResponseTimedOut(_ attempt: Attempt) -> SocketError {
        let request = self.request(of: attempt.call)
        let endpoint = self.endpoint(of: attempt.connection)
        let timeout = request.options.firstResponseTimeout ?? self.configuration.firstResponseTimeout ?? .zero
        let serial = attempt.serial.map { ", serial \($0)" } ?? ""
        return SocketError(
            .timeout,
            message: """
                no answer from \(endpoint) began within \(timeout) of the request's leaving (firstResponseTimeout; type \
                \(request.type)\(serial))\(self.silence(of: attempt))
                """,
            endpoint: endpoint,
            serial: attempt.serial,
            delivery: .sentUnknown
        )
    }
}
