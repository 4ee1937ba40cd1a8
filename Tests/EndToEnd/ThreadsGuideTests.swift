// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import HHSocketServer
import HHSocketTesting
import TestSupport
import Testing

@available(macOS 14, iOS 17, tvOS 17, watchOS 10, visionOS 1, *)
actor Conversation {
    private let client: SocketClient
    private(set) var lines: [String] = []
    // The actor keeps the client, and so its executor.
    nonisolated var unownedExecutor: UnownedSerialExecutor { self.client.executor.serial.asUnownedSerialExecutor() }

    init(_ client: SocketClient) {
        self.client = client
    }

    func say(_ line: String) async throws {
        let response = try await self.client.data(for: SocketRequest(type: 101, body: line))
        self.lines.append(response.string)
    }
}

private actor Directory {
    func number(of name: ByteBuffer) -> ByteBuffer { ByteBuffer(string: "the number of \(String(buffer: name))") }
}

private struct Database {
    func query(_ text: ByteBuffer) throws -> ByteBuffer { ByteBuffer(string: "rows of \(String(buffer: text))") }
}

@Sendable private func render(_ text: ByteBuffer) -> ByteBuffer { ByteBuffer(string: "<p>\(String(buffer: text))</p>") }

@Sendable private func expensiveDigest(of body: ByteBuffer) -> Int {
    body.readableBytesView.reduce(0) { $0 &* 31 &+ Int($1) }
}

/// The examples of `Threads.md`, word for word.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ThreadsGuideTests {
    @Test func everyExampleOfThePageIsInThisFile() throws {
        #expect(try DocumentationPage(guide: "Threads").shortcomings() == [])
    }

    @available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
    @Test func tasksOnTheThread() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient.connecting(to: server.endpoint)

        // Makes one call after the other, and never leaves the client's thread.
        let sum = Task(executorPreference: client.executor) {
            var sum = 0
            for number in 1...100 {
                let response = try await client.data(for: SocketRequest(type: 101, body: "\(number)"))
                sum += Int(response.string) ?? 0
            }
            return sum
        }
        print(try await sum.value)

        let digest = Task(executorPreference: client.executor) {
            let response = try await client.data(for: SocketRequest(type: 101, body: "picture 7"))
            // Off the thread, and back.
            return await withTaskExecutorPreference(globalConcurrentExecutor) { expensiveDigest(of: response.body) }
        }
        print(try await digest.value)

        #expect(try await sum.value == 5_050)
        #expect(try await digest.value == expensiveDigest(of: ByteBuffer(string: "picture 7")))
    }

    @available(macOS 14, iOS 17, tvOS 17, watchOS 10, visionOS 1, *)
    @Test func actorsOnTheThread() async throws {
        let server = try await MockServer(.echo)
        let conversation = Conversation(SocketClient.connecting(to: server.endpoint))
        try await conversation.say("hello")
        try await conversation.say("and goodbye")
        #expect(await conversation.lines == ["hello", "and goodbye"])
    }

    @available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
    @Test func pushesOnTheThread() async throws {
        let server = try await MockServer(.push(2001, "news"))
        let client = SocketClient.connecting(to: server.endpoint)

        let reader = Task(executorPreference: client.executor) {
            for await push in client.pushes(ofType: 2001) {
                print(push.string)
            }
        }

        let pushes = client.pushes(ofType: 2001)
        client.dispatch(SocketRequest(type: 101))
        #expect(try await first(of: pushes, "a push").string == "news")
        reader.cancel()
        try await waitForValue(of: reader, "the reader's end")
    }

    @Test func handlersWhereTheyBelong() async throws {
        let (directory, database) = (Directory(), Database())

        var router = Router()
        // Microseconds of work, and nothing to wait for: no task at all.
        router.handleSynchronously(101) { request, _ in request.body }
        // Mostly waits, for other services or this one's actors, and computes little.
        router.handle(102, on: .connection) { request, _ in
            await directory.number(of: request.body)
        }
        // Computes, or nobody knows: on Swift's thread pool, as by default.
        router.handle(103) { request, _ in render(request.body) }
        // Calls something that blocks.
        router.handleBlocking(104) { request, _ in try database.query(request.body) }

        router.handlerExecutor = .connection
        let server = SocketServer(configuration: .init(), router: router)
        try await server.start()
        let client = SocketClient.connecting(to: try #require(server.address))
        var answers: [String] = []
        for type: UInt32 in 101...104 {
            answers.append(try await client.data(for: SocketRequest(type: type, body: "ann")).string)
        }
        #expect(answers == ["ann", "the number of ann", "<p>ann</p>", "rows of ann"])
        await server.shutdown(gracePeriod: .zero)
    }
}
