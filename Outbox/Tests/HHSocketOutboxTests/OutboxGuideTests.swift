import Foundation
import HHSocketOutbox
import HHSocketRPC
import HHSocketServer
import NIOCore
import Testing

/// The examples of the last section of `Docs/AppLayer.md`, word for word.
@Suite(.timeLimit(.minutes(5))) struct OutboxGuideTests {
    @Test func everyExampleOfTheSectionIsInThisFile() throws {
        let source = try String(contentsOfFile: #filePath, encoding: .utf8)
        let repository = (0..<4).reduce(URL(fileURLWithPath: #filePath)) { url, _ in url.deletingLastPathComponent() }
        let page = try String(contentsOf: repository.appendingPathComponent("Docs/AppLayer.md"), encoding: .utf8)
        let sections = page.components(separatedBy: "\n## ")
        let section = try #require(sections.first { $0.hasPrefix("Messages that must leave\n") })
        let blocks = section.components(separatedBy: "```swift\n").dropFirst()
            .compactMap { $0.components(separatedBy: "\n```").first }
        #expect(blocks.count == 3)
        for block in blocks {
            let lines = block.components(separatedBy: "\n").map { $0.isEmpty ? "" : "        " + $0 }
            #expect(source.contains("\n" + lines.joined(separator: "\n") + "\n"), "\(block)")
        }
    }

    @Test func sendingOne() async throws {
        var serverConfiguration = SocketServer.Configuration()

        serverConfiguration.hello.idempotency.lifetime = .seconds(7 * 24 * 60 * 60)
        serverConfiguration.hello.idempotency.maximumCount = 10_000_000

        var router = Router()
        router.handle(130) { request, _ in request.body }
        let server = SocketServer(configuration: serverConfiguration, router: router)
        try await server.start()
        let servers = server.addresses
        let scratch = try Folder()
        let folder = scratch.path

        var configuration = SocketClient.Configuration(servers: servers)
        configuration.hello = HelloPolicy()
        let client = SocketClient(configuration: configuration)
        client.connect()

        let outbox = try await Outbox(at: folder + "/outbox.sqlite", client: client)
        try await outbox.enqueue(OutboxMessage(type: 130, body: "hello", topic: "conversation 7"))

        Task {
            for await event in outbox.events { print(event) }
        }
        for await snapshot in outbox.snapshots {
            print("\(snapshot.count) messages wait, \(snapshot.topics["conversation 7"]?.count ?? 0) of them here")
            if snapshot.count == 0 { break }
        }

        #expect(outbox.pending.isEmpty)
        await outbox.close()
        await server.shutdown(gracePeriod: .zero)
    }
}
