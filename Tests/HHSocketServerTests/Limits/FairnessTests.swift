// SPDX-License-Identifier: Apache-2.0
import Dispatch
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

private let block: UInt32 = 100
private let hang: UInt32 = 101
private let quick: UInt32 = 102

/// One client does not take the resources of others.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct FairnessTests {
    /// One connection queues jobs for threads that block; another connection's single job does not wait for all of
    /// them.
    @Test func connectionsAlternateOnThreadsThatBlock() async throws {
        var configuration = SocketServer.Configuration()
        configuration.blockingThreads = 1
        let release = DispatchSemaphore(value: 0)
        let order = Watched<[String]>([])
        var router = Router()
        router.handleBlocking(block) { request, _ in
            release.wait()
            order.withLockedValue { $0.append(String(buffer: request.body)) }
            return ByteBuffer()
        }
        try await withServer(configuration, router) { server in
            let greedy = try await HostileClient.connect(to: server.address)
            for serial in 50..<150 as Range<UInt32> { await greedy.perform(.request(block, serial: serial, "greedy")) }
            // A request is in flight before its handler has come to the threads.
            try await eventually("all but one wait") { server.parts?.services.threads.waitingCount == 99 }
            let modest = try await HostileClient.connect(to: server.address)
            await modest.perform(.request(block, serial: 50, "modest"))
            try await eventually("one more") { server.parts?.services.threads.waitingCount == 100 }
            for _ in 0..<101 { release.signal() }
            #expect(try await modest.response().status == .ok)
            _ = try await greedy.responses(100)
            let index = try #require(order.withLockedValue { $0.firstIndex(of: "modest") })
            #expect(index <= 3, "after \(index) of the other's")
        }
    }

    /// One client with many connections has no more turns than another with one.
    @Test func clientsAlternateOnThreadsThatBlock() async throws {
        var configuration = SocketServer.Configuration()
        configuration.blockingThreads = 1
        let release = DispatchSemaphore(value: 0)
        let order = Watched<[String]>([])
        var router = Router()
        router.handleSynchronously(quick) { request, context in
            context.session.authenticate(as: String(buffer: request.body))
            return ByteBuffer()
        }
        router.handleBlocking(block) { request, context in
            release.wait()
            order.withLockedValue { $0.append("\(context.session.identity ?? "") \(String(buffer: request.body))") }
            return ByteBuffer()
        }
        try await withServer(configuration, router) { server in
            func client(_ name: String) async throws -> HostileClient {
                let client = try await HostileClient.connect(to: server.address)
                await client.perform(.request(quick, serial: 50, ByteBuffer(string: name)))
                _ = try await client.response()
                return client
            }
            var (greedy, waiting) = ([HostileClient](), -1)
            for number in 0..<20 {
                let one = try await client("greedy")
                for serial in 51..<53 as Range<UInt32> {
                    await one.perform(.request(block, serial: serial, ByteBuffer(string: "\(number)")))
                    waiting += 1
                    let count = waiting
                    try await eventually("it waits") { server.parts?.services.threads.waitingCount == count }
                }
                greedy.append(one)
            }
            let modest = try await client("modest")
            for serial in 51..<54 as Range<UInt32> { await modest.perform(.request(block, serial: serial, "m")) }
            try await eventually("three more") { server.parts?.services.threads.waitingCount == 42 }
            for _ in 0..<43 { release.signal() }
            _ = try await modest.responses(3)
            for one in greedy { _ = try await one.responses(2) }
            let done = order.current
            #expect(done.count == 43)
            let last = try #require(done.lastIndex(of: "modest m"))
            #expect(last <= 6, "\(done.prefix(10))")
            // And the connections of the greedy one take turns among themselves.
            let first = done.filter { $0.hasPrefix("greedy") }.prefix(20)
            #expect(Set(first).count >= 19)
        }
    }

    /// Slow requests of one type do not lower the limit for another.
    @Test func theAdaptiveLimitOfOneTypeIsNotThatOfAnother() async throws {
        let configuration = SocketServer.Configuration.limited {
            $0.concurrency = AdaptiveConcurrency()
            $0.concurrency?.initial = 2
            $0.concurrency?.minimum = 2
            $0.concurrency?.maximum = 2
        }
        var router = Router()
        router.handle(hang) { _, _ in
            try await untilCancelled()
            return ByteBuffer()
        }
        router.handle(quick) { request, _ in request.body }
        try await withServer(configuration, router) { server in
            let client = try await HostileClient.connect(to: server.address)
            for serial in 50..<52 as Range<UInt32> { await client.perform(.request(hang, serial: serial)) }
            try await eventually("two requests in flight") { server.requestsInFlight == 2 }
            await client.perform(.request(hang, serial: 52))
            #expect(try await client.response().status == .overloaded)
            await client.perform(.request(quick, serial: 53))
            #expect(try await client.response().status == .ok)
        }
    }

    /// HTTP/2's Rapid Reset: requests that are cancelled immediately are never in flight.
    @Test func aClientThatOnlyCancelsIsSentAway() async throws {
        var router = Router()
        router.handle(hang) { _, _ in
            try await untilCancelled()
            return ByteBuffer()
        }
        // A burst that a client uses up soon, although the machine is slow. Nothing is added to it meanwhile.
        let configuration = SocketServer.Configuration.limited {
            $0.cancelRate = RequestRate(perSecond: 0.001, burst: 50)
        }
        try await withServer(configuration, router) { server in
            let client = try await HostileClient.connect(to: server.address)
            let sending = Task {
                for serial in 50..<30_000 as Range<UInt32> {
                    guard await client.perform(.request(hang, serial: serial)) == .done,
                        await client.perform(.cancel(serial)) == .done
                    else { return }
                }
            }
            let frame = try await client.response(within: patience)
            #expect(frame.type == FrameType.goAway)
            try await client.ended()
            sending.cancel()
            try await eventually("the end of every request") { server.requestsInFlight == 0 }
        }
    }
}
