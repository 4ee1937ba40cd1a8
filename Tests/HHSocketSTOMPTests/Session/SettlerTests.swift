// SPDX-License-Identifier: Apache-2.0
import HHSocketSTOMP
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

/// Acknowledgements and transactions whose frames were not sent, on a connection.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct SettlerTests {
    /// More than the buffers of two sockets.
    private static let length = 32 << 20

    /// A client that has received a message, and the broker.
    private struct Pair {
        let broker: MockBroker
        let client: STOMPClient
        let subscription: STOMPSubscription
        let message: STOMPMessage

        init(_ configure: (inout STOMPClient.Configuration) -> Void = { _ in }) async throws {
            var limits = STOMPLimits()
            limits.maximumBodyLength = 2 * SettlerTests.length
            var settings = MockBroker.Configuration()
            settings.limits = limits
            self.broker = try await MockBroker(configuration: settings)
            var configuration = STOMPClient.Configuration(servers: [self.broker.endpoint])
            configuration.limits = limits
            configure(&configuration)
            self.client = STOMPClient(configuration: configuration)
            self.client.connect()
            self.subscription = try self.client.subscribe(to: "/queue/a", ack: .clientIndividual)
            try await self.broker.publish("m", to: "/queue/a")
            self.message = try await first(of: self.subscription, "the message")
        }

        /// Returns when the socket's thread has performed what was requested before.
        func roundTrip() async throws { try await self.subscription.waitUntilConfirmed() }

        /// The broker does not read any more, and what the client sends next waits.
        func stall() async throws {
            await self.broker.perform(.stopReading)
            self.client.send(
                ByteBuffer(repeating: 7, count: SettlerTests.length),
                to: "/topic/nobody",
                completion: nil
            )
            try await self.roundTrip()
        }

        /// The broker reads again, and has read all that was sent.
        func resume() async throws {
            await self.broker.perform(.wakeUp)
            try await self.client.send("last", to: "/topic/nobody", receipt: true)
        }

        func count(_ command: STOMPCommand) -> Int { self.broker.received.count { $0.command == command } }

        var unacknowledged: Int? { self.broker.subscriptions(onConnection: 0).first?.unacknowledged }
    }

    private func isNotSent(_ error: any Error) -> Bool {
        guard let error = error as? SocketError else { return false }
        return error.code == .cancelled && error.delivery == .notSent
    }

    private func settle(_ message: STOMPMessage, isAcknowledged: Bool) async throws(SocketError) {
        if isAcknowledged { try await message.ack(receipt: true) } else { try await message.nack(receipt: true) }
    }

    @Test(arguments: [true, false]) func frameThatWasCancelledWhileItWaitedIsSentByTheNextCall(
        isAcknowledged: Bool
    ) async throws {
        let pair = try await Pair()
        try await pair.stall()
        let message = pair.message
        // Until the task was cancelled after its frame had been queued, and not before.
        var text = ""
        while !text.contains("was cancelled") || text.contains("the task") {
            let settling = Task { try await self.settle(message, isAcknowledged: isAcknowledged) }
            try await pair.roundTrip()
            try await pair.roundTrip()
            settling.cancel()
            let error = await #expect(throws: SocketError.self) { try await waitForValue(of: settling, "its end") }
            let cancelled = try #require(error)
            #expect(self.isNotSent(cancelled), "\(cancelled)")
            text = cancelled.message
        }
        try await pair.resume()
        #expect(pair.count(.ack) + pair.count(.nack) == 0)
        #expect(pair.unacknowledged == 1)
        // The message is unsettled again.
        try await self.settle(message, isAcknowledged: isAcknowledged)
        #expect(pair.count(.ack) == (isAcknowledged ? 1 : 0))
        #expect(pair.count(.nack) == (isAcknowledged ? 0 : 1))
        try await pair.client.disconnect()
    }

    @Test(arguments: [true, false], [true, false]) func messageWhoseFrameWasRefusedIsSettledByTheNextCall(
        isAcknowledged: Bool,
        receipt: Bool
    ) async throws {
        let pair = try await Pair()
        let message = pair.message
        // No version can express a zero byte.
        let headers: STOMPHeaders = ["reason": "a zero\0byte"]
        let error = await #expect(throws: SocketError.self) {
            if isAcknowledged {
                try await message.ack(headers: headers, receipt: receipt)
            } else {
                try await message.nack(headers: headers, receipt: receipt)
            }
        }
        #expect(error?.code == .invalidArgument && error?.delivery == .notSent)
        try await self.settle(message, isAcknowledged: isAcknowledged)
        #expect(pair.count(.ack) == (isAcknowledged ? 1 : 0))
        #expect(pair.count(.nack) == (isAcknowledged ? 0 : 1))
        try await pair.client.disconnect()
    }

    @Test func fullQueueRefusesMessagesAndNothingElse() async throws {
        let pair = try await Pair { $0.socket.maximumQueuedBytes = Self.length }
        try await pair.stall()
        let body = ByteBuffer(repeating: 7, count: Self.length)
        let full = await #expect(throws: SocketError.self) { try await pair.client.send(body, to: "/topic/nobody") }
        #expect(full?.code == .queueFull && full?.delivery == .notSent)
        // It awaits no receipt, so that it returns although the broker does not read.
        try await pair.message.ack()
        let fullInside = Watched<SocketError?>(nil)
        let transaction = Task {
            try await pair.client.transaction { transaction in
                do throws(SocketError) {
                    try await transaction.send(body, to: "/topic/nobody")
                } catch {
                    fullInside.withLockedValue { $0 = error }
                }
            }
        }
        let error = try await fullInside.value("the refusal") { $0 }
        #expect(error.code == .queueFull && error.delivery == .notSent)
        try await pair.resume()
        // What was refused is no part of it.
        try await waitForValue(of: transaction, "the end of the transaction")
        #expect(pair.count(.ack) == 1 && pair.count(.begin) == 1 && pair.count(.commit) == 1)
        #expect(pair.unacknowledged == 0 && pair.broker.transactions(onConnection: 0).isEmpty)
        try await pair.client.disconnect()
    }

    @Test func transactionWhoseCommitWasCancelledWhileItWaitedIsAborted() async throws {
        let pair = try await Pair()
        let isWaiting = Watched(false)
        let transaction = Task {
            try await pair.client.transaction { transaction in
                try await transaction.ack(pair.message)
                try await pair.stall()
                isWaiting.withLockedValue { $0 = true }
            }
        }
        try await isWaiting.wait("the commit") { $0 }
        for _ in 0..<10 { try await pair.roundTrip() }
        transaction.cancel()
        let error = await #expect(throws: SocketError.self) { try await waitForValue(of: transaction, "its end") }
        #expect(self.isNotSent(try #require(error)), "\(String(describing: error))")
        try await pair.resume()
        #expect(pair.count(.commit) == 0)
        #expect(pair.count(.abort) == 1)
        #expect(pair.broker.transactions(onConnection: 0).isEmpty)
        // Nothing of it took effect, the acknowledgement neither.
        try await pair.message.ack(receipt: true)
        #expect(pair.unacknowledged == 0)
        try await pair.client.disconnect()
    }

    @Test func transactionWhoseTaskIsCancelledBeforeItsCommitIsAborted() async throws {
        let pair = try await Pair()
        let transaction = Task {
            try await pair.client.transaction { transaction in
                try await transaction.ack(pair.message)
                withUnsafeCurrentTask { $0?.cancel() }
            }
        }
        let error = await #expect(throws: SocketError.self) { try await waitForValue(of: transaction, "its end") }
        #expect(self.isNotSent(try #require(error)), "\(String(describing: error))")
        try await pair.broker.received(1, .abort)
        #expect(pair.count(.commit) == 0)
        try await pair.message.ack(receipt: true)
        #expect(pair.unacknowledged == 0)
        try await pair.client.disconnect()
    }
}
