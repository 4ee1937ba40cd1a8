// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import Testing

@testable import HHSocketRPC

/// A request's deadline, in virtual time.
@Suite struct DeadlineTests {
    private let connection: SimulatedConnection
    private let client: ClientHost

    init() {
        var configuration = SocketClient.Configuration(servers: [])
        configuration.hello = HelloPolicy()
        (self.connection, self.client) = SimulatedConnection.make(configuration)
        self.connection.agreement = Agreement(version: 1, features: [.metadata])
        self.connection.beginConnecting()
    }

    private func start(deadline: NIODeadline, timeout: Duration? = nil) -> SocketTask {
        var request = SocketRequest(type: 101, body: "x", timeout: timeout)
        request.deadline = deadline
        let task = SocketTask(identifier: 1, request: request, engine: self.client.engine, completion: .nobody)
        task.resume()
        self.connection.runSubmissions()
        return task
    }

    private func remaining() throws -> UInt64? {
        let frame = try #require(self.connection.lastFrame)
        let envelope = try Envelope.open(
            type: frame.type,
            payload: frame.payload,
            agreedFlags: FrameType.metadataFlag,
            maximumBodyLength: 100
        )
        let metadata = try #require(envelope.metadata)
        return metadata.hasDeadline ? metadata.deadline : nil
    }

    @Test(arguments: [(1_500_000_000, 1_500), (1_000_001, 2), (1, 1)] as [(Int64, UInt64)])
    func theServerIsNotifiedHowMuchIsLeft(_ nanoseconds: Int64, _ milliseconds: UInt64) throws {
        self.connection.becomeReady()
        let task = self.start(deadline: self.connection.time + .nanoseconds(nanoseconds))
        #expect(try self.remaining() == milliseconds)
        task.cancel()
        self.connection.invalidate()
    }

    @Test func theTimeWaitedForAConnectionIsNotReported() throws {
        _ = self.start(deadline: self.connection.time + .seconds(5))
        #expect(self.connection.lastFrame == nil)
        self.connection.advance(to: self.connection.time + .seconds(2))
        self.connection.becomeReady()
        #expect(try self.remaining() == 3_000)
        self.connection.invalidate()
    }

    @Test func theCallEndsAtItsDeadlineOrItsTimeoutWhicheverIsFirst() throws {
        self.connection.becomeReady()
        let start = self.connection.time
        let byDeadline = self.start(deadline: start + .seconds(2), timeout: .seconds(5))
        let byTimeout = self.start(deadline: start + .seconds(9), timeout: .seconds(3))
        self.connection.advance(to: start + .seconds(2) - .nanoseconds(1))
        #expect(byDeadline.state == .running)
        self.connection.advance(to: start + .seconds(2))
        #expect(byDeadline.error?.code == .timeout)
        #expect(byDeadline.error?.delivery == .sentUnknown)
        #expect(byDeadline.error?.message.contains("before the request's deadline") == true)
        #expect(byTimeout.state == .running)
        self.connection.advance(to: start + .seconds(3))
        #expect(byTimeout.error?.code == .timeout)
        #expect(byTimeout.error?.message.contains("within 3.0 seconds") == true)
        self.connection.invalidate()
    }

    @Test func aDeadlineThatHasPassedFailsAtOnceAndNothingIsSent() {
        self.connection.becomeReady()
        for ago in [0, 1_000_000_000] as [Int64] {
            let task = self.start(deadline: self.connection.time - .nanoseconds(ago))
            #expect(task.error?.code == .timeout)
            #expect(task.error?.delivery == .notSent)
            #expect(task.error?.message.contains("deadline of the request of type 101 passed") == true)
        }
        #expect(self.connection.lastFrame == nil)
        self.connection.invalidate()
    }
}
