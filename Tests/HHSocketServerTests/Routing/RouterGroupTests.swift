// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// The layers that a request has passed.
private enum Path: ServerContextKey { typealias Value = [String] }

private struct Mark: ServerMiddleware {
    let name: String

    func handle(
        _ request: ServerRequest,
        _ context: ServerContext,
        next: Router.Handler
    ) async throws -> ByteBuffer {
        var context = context
        context[Path.self, default: []].append(self.name)
        return try await next(request, context)
    }
}

extension ServerContext {
    fileprivate subscript<Key: ServerContextKey>(
        _ key: Key.Type,
        default value: @autoclosure () -> Key.Value
    ) -> Key.Value {
        get { self[key] ?? value() }
        set { self[key] = newValue }
    }
}

private struct Failure: Error {
    var number: Int
}

private let path: Router.Handler = { _, context in
    ByteBuffer(string: (context[Path.self] ?? []).joined(separator: " "))
}

/// Groups, limits of types, and the answers to errors.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct RouterGroupTests {
    private func answers(_ router: Router, _ types: [UInt32], _ body: String = "") async throws -> [(Status, String)] {
        try await withServer(.init(), router) { server in
            let client = try await HostileClient.connect(to: server.address)
            var answers: [(Status, String)] = []
            for type in types {
                await client.perform(.request(type, serial: 50, body))
                let answer = try await client.response()
                answers.append((answer.status, String(buffer: answer.payload)))
            }
            return answers
        }
    }

    // MARK: Layers

    @Test func middlewareOfGroupsIsWithinThatOfTheRouter() async throws {
        var router = Router()
        router.handle(100, path)
        router.group(Mark(name: "a"), Mark(name: "b")) { group in
            group.handle(101, path)
            group.group(Mark(name: "inner")) { $0.handle(102, path) }
            // The layer applies to earlier registrations, too.
            group.use(Mark(name: "c"))
        }
        router.use(Mark(name: "router"))
        let answers = try await self.answers(router, [100, 101, 102])
        #expect(answers.map(\.1) == ["router", "router a b c", "router a b c inner"])
    }

    @Test func aLaterRegistrationReplacesAnEarlierOneWhereverItIs() async throws {
        var router = Router()
        router.group(Mark(name: "a")) { $0.handle(100, path) }
        router.handle(101, path)
        router.handle(100) { _, _ in ByteBuffer(string: "later") }
        router.group(Mark(name: "b")) { $0.handle(101, path) }
        let answers = try await self.answers(router, [100, 101])
        #expect(answers.map(\.1) == ["later", "b"])
    }

    @Test func aGroupWhoseRegistrationFailsKeepsNothing() async throws {
        var router = Router()
        #expect(throws: Failure.self) {
            try router.group { group in
                group.handle(100, path)
                throw Failure(number: 1)
            }
        }
        #expect(router.types.isEmpty)
    }

    @Test func aGroupHasTheExecutorOfItsRouterUnlessItSaysOtherwise() throws {
        var router = Router()
        router.group { $0.handle(100, path) }
        router.group { group in
            group.handlerExecutor = .connection
            group.handle(101, path)
            group.handle(102, on: .global, path)
        }
        func executor(_ type: UInt32) throws -> HandlerExecutor? {
            let route = router.routes(blockingOn: BlockingThreads(count: 1))[type]
            if case .asynchronous(_, let executor)? = route?.handling { return executor } else { return nil }
        }
        let before = try [100, 101, 102].map { try executor($0) }
        #expect(before == [.global, .connection, .global])
        // The setting applies to earlier registrations.
        router.handlerExecutor = .connection
        let after = try [100, 101, 102].map { try executor($0) }
        #expect(after == [.connection, .connection, .global])
    }

    @Test func valuesGoWithTheRequestAlone() async throws {
        enum Number: ServerContextKey { typealias Value = Int }
        var router = Router()
        router.handle(100) { _, context in
            var mine = context
            #expect(mine[Number.self] == nil)
            mine[Number.self] = 1
            mine[Path.self] = ["x"]
            #expect(mine[Number.self] == 1 && mine[Path.self] == ["x"])
            #expect(context[Number.self] == nil, "a context is a value")
            mine[Number.self] = nil
            #expect(mine[Number.self] == nil && mine[Path.self] == ["x"])
            return ByteBuffer()
        }
        let answers = try await self.answers(router, [100, 100])
        #expect(answers.map(\.0) == [.ok, .ok])
    }

    // MARK: Errors

    @Test func errorsHaveTheAnswersOfTheInnermostMapper() async throws {
        var router = Router()
        router.mapErrors { error in
            guard let failure = error as? Failure else { return nil }
            return StatusError(.database, body: ByteBuffer(string: "router \(failure.number)"))
        }
        router.handle(100) { _, _ in throw Failure(number: 1) }
        router.handleSynchronously(101) { _, _ in throw Failure(number: 1) }
        router.handleBlocking(102) { _, _ in throw Failure(number: 1) }
        router.group { group in
            group.mapErrors { ($0 as? Failure)?.number == 2 ? StatusError(.noPermission) : nil }
            group.handle(103) { _, _ in throw Failure(number: 2) }
            group.handle(104) { _, _ in throw Failure(number: 3) }
        }
        router.handle(105) { _, _ in throw Unexpected(description: "no answer") }
        router.handle(106) { _, _ in throw StatusError(.illegalFormat) }
        let answers = try await self.answers(router, [100, 101, 102, 103, 104, 105, 106])
        #expect(
            answers.map(\.0) == [.database, .database, .database, .noPermission, .database, .unknown, .illegalFormat]
        )
        #expect(answers.map(\.1) == ["router 1", "router 1", "router 1", "", "router 3", "", ""])
    }

    @Test func middlewareSeesTheAnswerOfAMapperAndItsOwnErrorsHaveOne() async throws {
        let seen = Watched<[Status]>([])
        struct Watch: ServerMiddleware {
            let seen: Watched<[Status]>

            func handle(
                _ request: ServerRequest,
                _ context: ServerContext,
                next: Router.Handler
            ) async throws -> ByteBuffer {
                do {
                    return try await next(request, context)
                } catch {
                    self.seen.withLockedValue { $0.append((error as? StatusError)?.status ?? .unknown) }
                    throw Failure(number: 7)
                }
            }
        }
        var router = Router()
        router.use(Watch(seen: seen))
        router.mapErrors { error in
            (error as? Failure).map { $0.number == 7 ? StatusError(.illegalFormat) : StatusError(.database) }
        }
        router.handle(100) { _, _ in throw Failure(number: 1) }
        let answers = try await self.answers(router, [100])
        #expect(answers.map(\.0) == [.illegalFormat])
        #expect(seen.current == [.database])
    }

    // MARK: Limits

    @Test func bodiesOfATypeAreBounded() async throws {
        var router = Router()
        router.group(limits: RouteLimits(maximumBodyLength: 4)) { group in
            group.handle(100) { request, _ in request.body }
            group.handleSynchronously(101) { request, _ in request.body }
            group.handle(102, limits: RouteLimits(maximumBodyLength: 5)) { request, _ in request.body }
            group.handle(103) { request, _ in request.body }
            group.limit(103, to: RouteLimits(maximumBodyLength: 6))
        }
        router.handleSynchronously(104) { request, _ in request.body }
        let short = try await self.answers(router, [100, 101, 102, 103, 104], "four")
        #expect(short.allSatisfy { $0.0 == .ok && $0.1 == "four" })
        let long = try await self.answers(router, [100, 101, 102, 103, 104], "fives")
        #expect(long.map(\.0) == [.illegalLength, .illegalLength, .ok, .ok, .ok])
        let longer = try await self.answers(router, [102, 103, 104], "longer!")
        #expect(longer.map(\.0) == [.illegalLength, .illegalLength, .ok])
    }

    @Test func aCompressedBodyIsDecompressedNoFurtherThanItsTypeAllows() async throws {
        var router = Router()
        router.handle(100, limits: RouteLimits(maximumBodyLength: 1 << 20)) { request, _ in
            ByteBuffer(integer: request.body.readableBytes)
        }
        try await withServer(.init(), router) { server in
            let greeter = try await Greeter(server)
            _ = try await greeter.greet()
            for (length, status) in [(1 << 20, .ok), ((1 << 20) + 1, .illegalLength), (16 << 20, .illegalLength)]
                as [(Int, Status)]
            {
                let body = ByteBuffer(repeating: 0, count: length)
                try await greeter.call(100, body, compression: CompressionPolicy())
                let answer = try await greeter.answer().frame
                #expect(answer.status == status)
                if status == .ok { #expect(answer.payload == ByteBuffer(integer: length)) }
            }
            try await eventually("nothing is held") { server.bufferedBytes == 0 }
            #expect(server.requestsInFlight == 0)
        }
    }

    @Test func requestsOfATypeInFlightAreBoundedAndThoseOfAnotherAreNot() async throws {
        let release = Gate()
        let wait: Router.Handler = { _, _ in
            try await release.wait()
            return ByteBuffer()
        }
        var router = Router()
        router.group(limits: RouteLimits(maximumInFlight: 2)) { group in
            group.handle(100, wait)
            group.handle(101, wait)
        }
        try await withServer(.init(), router) { server in
            let clients = [
                try await HostileClient.connect(to: server.address),
                try await HostileClient.connect(to: server.address),
            ]
            for client in clients { await client.perform(.request(100, serial: 50)) }
            try await eventually("two requests in flight") { server.requestsInFlight == 2 }
            await clients[0].perform(.request(100, serial: 51))
            #expect(try await clients[0].response().status == .overloaded)
            await clients[0].perform(.request(101, serial: 52))
            try await eventually("one of the other type") { server.requestsInFlight == 3 }
            #expect(server.statistics[.overloadsOfType] == 1 && server.statistics[.overloads] == 1)
            release.open()
            _ = try await clients[0].responses(2)
            _ = try await clients[1].response()
            await clients[0].perform(.request(100, serial: 53))
            #expect(try await clients[0].response().status == .ok)
            try await eventually("the end of every request") { server.requestsInFlight == 0 }
        }
    }

    @Test func limitsThatCannotWorkAreRefusedAtTheStart() async throws {
        for limits in [
            RouteLimits(maximumBodyLength: -1), RouteLimits(maximumInFlight: 0), RouteLimits(timeout: .zero),
        ] {
            var router = Router()
            router.handle(100, path)
            router.limit(100, to: limits)
            let server = SocketServer(configuration: .init(), router: router)
            let error = await #expect(throws: SocketError.self) { try await server.start() }
            #expect(error?.code == .invalidArgument)
            #expect(error?.message.contains("type 100") == true)
        }
    }
}
