// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOConcurrencyHelpers

/// Runs the authentications of a server's clients, by hello and by requests to open a WebSocket, as
/// ``AuthenticationLine`` decides.
final class Authentications: Sendable {
    private struct Waiting: Sendable {
        var body: @Sendable () async -> Void
        var refused: @Sendable () -> Void
    }

    private struct State: Sendable {
        var line: AuthenticationLine
        var waiting: [AuthenticationLine.Ticket: Waiting] = [:]
        var running: [AuthenticationLine.Ticket: Task<Void, Never>] = [:]
    }

    private let state: NIOLockedValueBox<State>

    init(_ hello: ServerHello) {
        let line = AuthenticationLine(
            maximumRunning: hello.maximumConcurrentAuthentications,
            maximumWaiting: hello.maximumWaitingAuthentications
        )
        self.state = NIOLockedValueBox(State(line: line))
    }

    /// The numbers of running and of waiting authentications.
    var counts: (running: Int, waiting: Int) {
        self.state.withLockedValue { ($0.line.runningCount, $0.line.waitingCount) }
    }

    /// Runs `body` in a task, at once or when it is its turn.
    ///
    /// - Parameters:
    ///   - origin: The client's address.
    ///   - refused: Called, on any thread, if `body` waits and then is not run after all.
    /// - Returns: Nil if it is not run: too many wait.
    func begin(
        from origin: AuthenticationLine.Origin,
        _ body: @escaping @Sendable () async -> Void,
        refused: @escaping @Sendable () -> Void
    ) -> Authentication? {
        let (ticket, displaced): (AuthenticationLine.Ticket?, Waiting?) = self.state.withLockedValue { state in
            switch state.line.arrive(from: origin) {
            case .runs(let ticket):
                self.start(ticket, body: body, state: &state)
                return (ticket, nil)
            case .waits(let ticket, let displaced):
                state.waiting[ticket] = Waiting(body: body, refused: refused)
                return (ticket, displaced.flatMap { state.waiting.removeValue(forKey: $0) })
            case .refused:
                return (nil, nil)
            }
        }
        displaced?.refused()
        return ticket.map { Authentication(owner: self, ticket: $0) }
    }

    /// Inside the lock: a task that has ended at once finds itself in the table.
    private func start(
        _ ticket: AuthenticationLine.Ticket,
        body: @escaping @Sendable () async -> Void,
        state: inout State
    ) {
        state.running[ticket] = Task {
            await body()
            self.returned(ticket)
        }
    }

    private func returned(_ ticket: AuthenticationLine.Ticket) {
        self.state.withLockedValue { state in
            state.running[ticket] = nil
            guard let next = state.line.returned(), let waiting = state.waiting.removeValue(forKey: next) else {
                return
            }
            self.start(next, body: waiting.body, state: &state)
        }
    }

    fileprivate func cancel(_ ticket: AuthenticationLine.Ticket) {
        // Released and cancelled outside the lock, since that may run other code.
        let (waiting, running): (Waiting?, Task<Void, Never>?) = self.state.withLockedValue { state in
            if state.line.giveUp(ticket) { return (state.waiting.removeValue(forKey: ticket), nil) }
            return (nil, state.running[ticket])
        }
        running?.cancel()
        withExtendedLifetime(waiting) {}
    }
}

/// An authentication that runs or waits.
struct Authentication: Sendable {
    fileprivate let owner: Authentications
    fileprivate let ticket: AuthenticationLine.Ticket

    /// Abandons it: if it waits, it does not run, and if it runs, it is cancelled. Its slot is free when it has
    /// returned.
    func cancel() { self.owner.cancel(self.ticket) }
}
