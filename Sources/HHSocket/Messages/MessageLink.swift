// SPDX-License-Identifier: Apache-2.0
import NIOConcurrencyHelpers
import NIOCore

/// The driver and the session of a link of messages, behind its public object. Any thread.
///
/// The public object ends it with ``Driver/invalidate()``: until then the session and its driver retain each other.
package final class MessageLink<Dialect: MessageDialect>: Sendable {
    package let driver: Driver
    package let session: MessageSession<Dialect>

    /// - Parameter world: The clock, network and chance; nil: the system's.
    package init(_ dialect: Dialect, in world: DriverWorld? = nil) {
        let session = MessageSession(dialect)
        self.session = session
        self.driver = Driver(configuration: dialect.socket, maker: session, refusal: dialect.refusal, world: world)
        session.attach(to: self.driver)
        self.driver.setHost(session)
    }

    /// Sends a message, and returns when its last byte was handed to the system. Cancelling the calling task removes it
    /// while it waits.
    package func send(_ makeUnit: (MessageOutcome) -> Dialect.Language.Unit) async throws(SocketError) {
        try await self.wait {
            self.submit(makeUnit($0))
        } cancel: { outcome in
            self.driver.submit { [session = self.session] _ in session.cancel(outcome) }
        }
    }

    /// Waits for the outcome of what `begin` begins, which `cancel` withdraws when the calling task is cancelled.
    func wait(
        _ begin: (MessageOutcome) -> Void,
        cancel: @Sendable (MessageOutcome) -> Void
    ) async throws(SocketError) {
        let taken = NIOLockedValueBox<MessageOutcome?>(nil)
        let result = await withTaskCancellationHandler {
            await withCheckedContinuation { (sender: CheckedContinuation<Result<Void, SocketError>, Never>) in
                let outcome = MessageOutcome { sender.resume(returning: $0) }
                taken.withLockedValue { $0 = outcome }
                begin(outcome)
                if Task.isCancelled { cancel(outcome) }
            }
        } onCancel: {
            if let outcome = taken.withLockedValue({ $0 }) { cancel(outcome) }
        }
        try result.get()
    }

    /// Sends a message without waiting.
    ///
    /// - Parameter completion: Called once, on the callback queue; nil for no notification.
    package func send(
        completion: (@Sendable (Result<Void, SocketError>) -> Void)?,
        _ makeUnit: (MessageOutcome?) -> Dialect.Language.Unit
    ) {
        guard let completion else { return self.submit(makeUnit(nil)) }
        let (queue, loop) = (self.driver.configuration.callbackQueue, self.driver.loop)
        self.submit(makeUnit(MessageOutcome { result in queue.run(on: loop) { completion(result) } }))
    }

    private func submit(_ unit: Dialect.Language.Unit) {
        let session = self.session
        // A handler on the socket's thread sends at once.
        let isSent = self.driver.loop.ifHandlersRun { turn in
            session.send(unit, in: &turn)
            return true
        }
        if !isSent { self.driver.submit { session.send(unit, in: &$0) } }
    }

    /// Waits until the connection that the user has closed is closed; returns at once if there is none.
    package func waitUntilClosed() async {
        await withCheckedContinuation { (waiter: CheckedContinuation<Void, Never>) in
            let driver = self.driver
            let isSubmitted = driver.submit { _ in driver.drained().whenComplete { _ in waiter.resume() } }
            if !isSubmitted { waiter.resume() }
        }
    }
}
