// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketMessage
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// The agreement of hello on streams.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct StreamHelloTests {
    @Test func helloAgreesOnStreamsWhereTheClientAsksForThem() async throws {
        var configuration = SocketServer.Configuration()
        try await withServer(configuration, makeStreamRouter()) { server in
            let client = try await StreamClient(server)
            #expect(client.reply.features == ["metadata", "streams"])
            // The others have the protocol's defaults, for which it sends 0.
            #expect(client.reply.streamWindow == 524_288)
            #expect((client.reply.connectionWindow, client.reply.maximumStreams) == (0, 0))
            let plain = try await StreamClient(server, features: ["metadata"])
            #expect(plain.reply.features == ["metadata"])
        }
        configuration.streams = StreamPolicy(streamWindow: 1_000, connectionWindow: 5_000, maximumStreams: 7)
        try await withServer(configuration, makeStreamRouter()) { server in
            let client = try await StreamClient(server)
            #expect(client.reply.streamWindow == 1_000)
            #expect(client.reply.connectionWindow == 5_000)
            #expect(client.reply.maximumStreams == 7)
        }
    }

    @Test func aServerThatAnswersInOrderOrHasNoPolicyDoesNotAgree() async throws {
        var inOrder = SocketServer.Configuration()
        inOrder.answersInOrder = true
        var without = SocketServer.Configuration()
        without.streams = nil
        for configuration in [inOrder, without] {
            try await withStreams(configuration) { client, server in
                #expect(client.reply.features == ["metadata"])
                try await client.open(StreamCall.echo)
                try await client.expectEnd(50, .illegalFormat)
                #expect(server.statistics[.illegalRequests] == 1)
            }
        }
    }

    @Test func withoutHelloAStreamIsAnswered303() async throws {
        try await withServer(.init(), makeStreamRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            await client.perform(.request(StreamCall.count, serial: 50, "3"))
            #expect(try await client.response().status == .illegalFormat)
            await client.perform(.request(StreamCall.plain, serial: 51, "hi"))
            #expect(try await client.response().status == .ok)
        }
    }
}
