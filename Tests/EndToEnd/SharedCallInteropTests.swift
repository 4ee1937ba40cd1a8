// SPDX-License-Identifier: Apache-2.0
import GeneratedSamples
import HHSocket
import HHSocketApp
import HHSocketServer
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

/// Managers and the real server.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct SharedCallInteropTests {
    @Test func aThousandIdenticalTypedRequestsAtOnceReachTheServerOnce() async throws {
        let method = MethodDescriptor<Every_Thing_Maps, Every_Thing_Maps>("test.Maps/Echo", type: 140, kind: .unary)
        let runs = NIOLockedValueBox(0)
        let asked = Gate()
        var router = Router()
        router.handle(method) { message, _ in
            runs.withLockedValue { $0 += 1 }
            // No request is too late to share the call.
            try await asked.wait()
            return message
        }
        try await Pair.with(.standard, router: router) { client, _ in
            let cache = ResponseCache()
            let manager = APIManager(client: client, cache: cache)
            let values = Watched<[Int]>([])
            for number in 0..<1_000 {
                // Equal maps, whose order differs each time.
                var message = Every_Thing_Maps()
                message.stringString = Dictionary(minimumCapacity: number * 10)
                for key in 0..<20 { message.stringString["key \((key + number) % 20)"] = "value" }
                var request = try APIRequest(method, message, options: CallOptions(timeout: patience))
                request.cachePolicy = .returningCached
                manager.dispatch(request) { result in
                    values.withLockedValue { $0.append((try? result.get())?.value.stringString.count ?? -1) }
                }
            }
            // They are made on other threads.
            try await eventually("a thousand requests") { cache.statistics.hits + cache.statistics.misses == 1_000 }
            asked.open()
            try await values.wait("a thousand answers") { $0.count == 1_000 }
            #expect(values.withLockedValue { Set($0) } == [20])
            #expect(runs.withLockedValue { $0 } == 1)
            #expect(cache.statistics.calls == 1)
        }
    }

    @Test func cancellingTheLastCallerCancelsTheHandler() async throws {
        let events = Watched<[String]>([])
        var router = Router()
        router.handle(101) { request, _ in
            events.withLockedValue { $0.append("runs") }
            do {
                try await untilCancelled()
            } catch {
                events.withLockedValue { $0.append("cancelled") }
                throw error
            }
            return request.body
        }
        try await Pair.with(.standard, router: router) { client, _ in
            var request = APIRequest(SocketRequest(type: 101, body: "7"))
            request.cachePolicy = .returningCached
            let cache = ResponseCache()
            var managers = (0..<3).map { _ in APIManager(client: client, cache: cache) }
            for manager in managers { manager.dispatch(request) { _ in } }
            try await events.wait("the handler") { $0 == ["runs"] }
            managers.removeLast(2)
            #expect(cache.statistics.misses == 3)
            #expect(events.current == ["runs"])
            managers = []
            try await events.wait("the cancel") { $0 == ["runs", "cancelled"] }
        }
    }
}
