// SPDX-License-Identifier: Apache-2.0
import Dispatch
import Foundation
import HHSocket
import HHSocketRPC
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketApp

/// Managers on a client of a scripted server.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ManagerClientTests {
    private func request(_ body: String = "7", validity: Duration = .seconds(60)) -> APIRequest<String> {
        var request = APIRequest(SocketRequest(type: 101, body: body)) { $0.string }
        request.cachePolicy = .returningCached
        request.validity = validity
        return request
    }

    @Test(arguments: [CallbackQueue.default, .socketThread])
    func aThousandIdenticalRequestsAtOnceAreOneCall(_ queue: CallbackQueue) async throws {
        let clock = VirtualClock()
        let server = try await MockServer(.echo, clock: clock)
        // The call is in flight while they ask.
        server.on(101, .echo.delayed(by: .seconds(1)))
        let client = SocketClient.connecting(to: server.endpoint) { $0.socket.callbackQueue = queue }
        let cache = ResponseCache()
        let managers = (0..<10).map { _ in APIManager(client: client, cache: cache) }
        let values = Watched<[String]>([])
        await withTaskGroup(of: Void.self) { group in
            for manager in managers {
                group.addTask {
                    for _ in 0..<100 {
                        manager.dispatch(self.request()) { result in
                            values.withLockedValue { $0.append((try? result.get())?.value ?? "failed") }
                        }
                    }
                }
            }
        }
        // The answer comes when all have asked.
        try await eventually("a thousand requests") { cache.statistics.hits + cache.statistics.misses == 1_000 }
        try await eventually("a thousand answers") {
            clock.advance(by: .seconds(1))
            return values.current.count == 1_000
        }
        withExtendedLifetime(managers) {}
        #expect(values.withLockedValue { Set($0) } == ["7"])
        #expect(server.received.count { $0.type == 101 } == 1)
        let statistics = cache.statistics
        #expect(statistics.calls == 1)
        #expect(statistics.hits + statistics.misses == 1_000)
        await client.close()
    }

    @Test func onTheSocketThreadTooNoHandlerRunsWithinDispatch() async throws {
        let server = try await MockServer(.echo)
        server.on(102, .drop)
        let client = SocketClient.connecting(to: server.endpoint) { $0.socket.callbackQueue = .socketThread }
        let manager = APIManager(client: client, cache: ResponseCache(maximumCallers: 2))
        _ = try await manager.value(for: self.request())
        let order = Watched<[String]>([])
        let note: @Sendable (String) -> Void = { text in order.withLockedValue { $0.append(text) } }
        let unanswered = APIRequest(SocketRequest(type: 102))
        manager.dispatch(self.request()) { [request = self.request()] _ in
            // On the socket thread, so that no handler can run at the same time.
            manager.dispatch(unanswered) { _ in }
            manager.dispatch(unanswered) { _ in }
            // The request is rejected immediately.
            manager.dispatch(request) { result in
                if case .failure(let error) = result { note("\(error.code)") } else { note("answered") }
            }
            note("dispatched")
        }
        try await order.wait("both") { $0.count == 2 }
        #expect(order.current == ["dispatched", "tooManyInFlight"])
        manager.cancelAllTasks()
        await client.close()
    }

    @Test func keptAnswersAreRevalidatedWhereHelloAgreedOnMetadata() async throws {
        let server = try await MockServer()
        server.acceptHello()
        server.on(
            101,
            .respond { received in
                received.metadata["revision"] == "a"
                    ? .status(.notModified).withMetadata(["region": "eu"])
                    : .answer("hello").withMetadata(["revision": "a"])
            }
        )
        let client = SocketClient.connecting(to: server.endpoint) { $0.hello = HelloPolicy() }
        let clock = VirtualClock()
        let manager = APIManager(client: client, cache: ResponseCache(clock: APIClock(clock)))
        #expect(try await manager.response(for: self.request()).source == .network)
        clock.advance(by: .seconds(61))
        let renewed = try await manager.response(for: self.request())
        #expect(renewed.value == "hello" && renewed.source == .revalidated && renewed.isHit)
        #expect(renewed.response.metadata == ["revision": "a", "region": "eu"])
        clock.advance(by: .seconds(59))
        #expect(try await manager.response(for: self.request()).source == .cache(age: .seconds(59)))
        #expect(server.received.filter { $0.type == 101 }.map(\.metadata) == [[:], ["revision": "a"]])
        await client.close()
    }

    @Test func withoutAnAgreementAnswersAreRequestedWithoutRevision() async throws {
        // The second connection has no metadata.
        let server = try await MockServer()
        server.acceptHello()
        server.on(101, .answer("hello").withMetadata(["revision": "a"]))
        let client = SocketClient.connecting(to: server.endpoint) { $0.hello = HelloPolicy() }
        let manager = APIManager(client: client)
        _ = try await manager.value(for: self.request())
        server.acceptHello(features: [])
        server.on(101, .answer("hello again"))
        await server.connections.first?.perform(.close)
        try await server.ended(connection: 0)
        _ = try await server.connection(1)
        var request = self.request(validity: .zero)
        request.request.waitsForConnectivity = true
        let again = try await manager.response(for: request)
        #expect(again.value == "hello again" && again.source == .network)
        #expect(server.received.filter { $0.type == 101 }.map(\.metadata) == [[:], [:]])
        await client.close()
    }

    @Test func cancellingTheLastCallerNotifiesTheServer() async throws {
        let server = try await MockServer(.drop)
        let client = SocketClient.connecting(to: server.endpoint)
        let manager = APIManager(client: client)
        let codes = Watched<[SocketError.Code]>([])
        let identifiers = (0..<2).map { _ in
            manager.dispatch(self.request()) { result in
                if case .failure(let error) = result { codes.withLockedValue { $0.append(error.code) } }
            }
        }
        let sent = try await server.received(1, ofType: 101)
        for identifier in identifiers { manager.cancelTask(withIdentifier: identifier) }
        let cancel = try await server.received(1, ofType: FrameType.cancel)
        #expect(cancel.first?.serial == sent.first?.serial)
        try await codes.wait("both") { $0 == [.cancelled, .cancelled] }
        await client.close()
    }

    @Test func aManagerThatIsTheLastToHaveItsClientEndsIt() async throws {
        let server = try await MockServer(.drop)
        let client = WeakReference<SocketClient>()
        let codes = NIOLockedValueBox<[SocketError.Code]>([])
        func begin() async throws -> APIManager {
            let made = SocketClient.connecting(to: server.endpoint)
            client.set(made)
            let manager = APIManager(client: made)
            manager.dispatch(self.request()) { result in
                if case .failure(let error) = result { codes.withLockedValue { $0.append(error.code) } }
            }
            _ = try await server.received(1, ofType: 101)
            return manager
        }
        var manager: APIManager? = try await begin()
        #expect(client.object != nil && manager != nil)
        manager = nil
        try await eventually("the end") { codes.withLockedValue { $0 } == [.cancelled] && client.object == nil }
    }

    @Test func theClientsTimeoutIsTheDefault() async throws {
        let server = try await MockServer(.drop)
        let client = SocketClient.connecting(to: server.endpoint) { $0.timeout = .milliseconds(20) }
        let manager = APIManager(client: client)
        let error = try await socketError { () async throws(SocketError) in
            _ = try await manager.value(for: self.request())
        }
        #expect(error.code == .timeout)
        await client.close()
    }
}
