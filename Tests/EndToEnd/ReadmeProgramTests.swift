// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import HHSocketServer
import TestSupport
import Testing

/// The program of `README.md`, which is also in `Examples/Greeter`. `make test-readme` runs it there, with the other
/// lines of the page.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ReadmeProgramTests {
    private let page: DocumentationPage

    init() throws {
        self.page = try DocumentationPage("README.md", section: "Fifteen lines")
    }

    @Test func theProgramIsInThisFileAndInItsPackage() throws {
        #expect(try self.page.shortcomings() == [])
        let source = try DocumentationPage("Examples/Greeter/Sources/greeter/main.swift").text
        #expect(self.page.blocks() == [String(source.dropLast())])
        let manifest = try DocumentationPage("Examples/Greeter/Package.swift").text
        #expect(try DocumentationPage("README.md").blocks().contains(String(manifest.dropLast())))
    }

    @Test func theProgramHasFifteenLines() {
        let lines = self.page.blocks().flatMap { $0.split(separator: "\n") }
        #expect(lines.count == 15)
    }

    @Test func theProgramPrintsWhatThePageSays() async throws {
        var printed: [String] = []
        func print(_ text: String) { printed.append(text) }

        var router = Router()
        router.handle(101) { request, context in
            await context.session.push(type: 2001, body: ByteBuffer(string: "welcome"))
            return ByteBuffer(string: "hello, \(String(buffer: request.body))")
        }
        let server = SocketServer(configuration: .init(port: 0), router: router)
        try await server.start()

        let client = SocketClient(configuration: .init(servers: server.addresses))
        let pushes = client.pushes(ofType: 2001)
        client.connect()
        print(try await client.data(for: SocketRequest(type: 101, body: "Ann")).string)
        for await push in pushes.prefix(1) { print(push.string) }
        await server.shutdown()

        #expect(self.page.blocks("") == [printed.joined(separator: "\n")])
    }
}
