// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// The order in which a server forgets the answers of its clients.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct IdempotencyQuotaTests {
    private static let count: UInt32 = 200
    private static let large: UInt32 = 201

    private func router(_ runs: Watched<Int>) -> Router {
        var router = Router()
        router.handle(Self.count) { _, _ in ByteBuffer(string: "\(runs.increment())") }
        router.handle(Self.large) { _, _ in
            runs.increment()
            return ByteBuffer(repeating: 0, count: 2 << 20)
        }
        return router
    }

    private var configuration: SocketServer.Configuration {
        var configuration = SocketServer.Configuration()
        configuration.hello.authenticate = { token, _ in
            token.isEmpty ? nil : String(decoding: token, as: UTF8.self)
        }
        configuration.hello.compression = nil
        return configuration
    }

    private func greet(_ server: SocketServer, as name: String?) async throws -> Greeter {
        let greeter = try await Greeter(server)
        var hello = WireHello.all
        if let name { hello.sessionToken = Data(name.utf8) }
        _ = try await greeter.greet(hello)
        return greeter
    }

    private func call(_ greeter: Greeter, _ key: String, type: UInt32 = Self.count) async throws -> ByteBuffer {
        try await greeter.call(type, ByteBuffer(), WireMetadata(key: key))
        return try await greeter.answer().frame.payload
    }

    /// H4 of the review: it made a retry of a payment run twice.
    @Test func strangersCannotMakeTheServerForgetWhatOthersHaveDone() async throws {
        let runs = Watched(0)
        var configuration = self.configuration
        configuration.hello.idempotency.maximumCount = 320
        try await withServer(configuration, self.router(runs)) { server in
            let ann = try await self.greet(server, as: "ann")
            #expect(try await self.call(ann, "payment") == ByteBuffer(string: "1"))
            let stranger = try await self.greet(server, as: nil)
            for number in 0..<1_000 { _ = try await self.call(stranger, "k\(number)") }
            let bob = try await self.greet(server, as: "bob")
            for number in 0..<1_000 { _ = try await self.call(bob, "k\(number)") }
            #expect(try await self.call(ann, "payment") == ByteBuffer(string: "1"))
            #expect(runs.current == 2_001)
            #expect(server.statistics[.idempotentRepeats] == 1)
            // 320 / 64 and 320 / 16 answers are kept.
            #expect(server.statistics[.idempotentAnswersForgotten] == 995 + 980)
        }
    }

    /// Otherwise five of them would empty the window.
    @Test func largeAnswersAreNotKept() async throws {
        let runs = Watched(0)
        try await withServer(self.configuration, self.router(runs)) { server in
            let ann = try await self.greet(server, as: "ann")
            _ = try await self.call(ann, "payment")
            for number in 0..<40 { _ = try await self.call(ann, "k\(number)", type: Self.large) }
            #expect(try await self.call(ann, "payment") == ByteBuffer(string: "1"))
            #expect(server.statistics[.idempotentAnswersTooLarge] == 40)
            #expect(server.statistics[.idempotentAnswersForgotten] == 0)
            #expect(runs.current == 41)
        }
    }
}
