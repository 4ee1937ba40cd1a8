// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import HHSocketServer
import SwiftProtobuf
import SwiftProtobufSamples
import TestSupport
import Testing

private struct Transfers: Files_Transfer.ServiceProtocol {
    func begin(_ request: Files_File, context: ServerContext) async throws -> Files_Upload {
        .with { $0.id = request.length }
    }

    func send(_ request: Files_Piece, context: ServerContext) async throws -> Files_Upload { Files_Upload() }
    func fetch(_ request: Files_PieceRequest, context: ServerContext) async throws -> Files_Piece { Files_Piece() }
    func sendAll(_ requests: RequestMessages<Files_Piece>, context: ServerContext) async throws -> Files_Upload {
        Files_Upload()
    }
}

/// "Both in one program" of `Docs/MigratingFromSwiftProtobuf.md`, word for word.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct SwiftProtobufBodiesTests {
    @Test func messagesOfSwiftProtobufAreCalled() async throws {
        var printed = ""
        func print(_ text: String) { printed += text }
        var router = Router()
        router.register(Transfers())
        let server = SocketServer(configuration: .init(port: 0), router: router)
        try await server.start()
        let client = SocketClient(configuration: .init(servers: server.addresses))
        client.connect()

        let transfer = Files_Transfer.Client(client)
        let file = try Files_File(jsonString: #"{"name": "photo.jpg", "length": "70000"}"#)
        let upload = try await transfer.begin(file)
        print(upload.textFormatString())

        #expect(printed == "id: 70000\n")
        await client.close()
        await server.shutdown(gracePeriod: .zero)
    }
}

/// Runs the generator, so it is left out where only the tests are built.
@Suite(.timeLimit(.minutes(5))) struct SwiftProtobufBodiesLineTests {
    /// The page's line for `protoc`, without the parts for other generators.
    @Test(
        .enabled(
            if: Command.installed("protoc") != nil,
            "There is no protoc: lines of Docs/MigratingFromSwiftProtobuf.md are NOT TESTED here. Install the package protobuf-compiler."
        )
    )
    func theLineForProtocMakesBodiesOfMessages() async throws {
        let page = try DocumentationPage("Docs/MigratingFromSwiftProtobuf.md")
        let lines = page.blocks("").flatMap { $0.components(separatedBy: "\n") }
        let line = try #require(lines.first { $0.contains("--hhsocket_out") })
        let folder = try TemporaryFolder()
        let shell = try #require(Command.installed("sh", or: ["/bin"]))
        let script = """
            cd '\(folder.path)'
            mkdir -p Sources/Files
            ln -s '\(packageFolder.path)/Protos' Protos
            PATH='\(Command.executable("protoc-gen-hhsocket").deletingLastPathComponent().path)':$PATH
            \(line)
            cat Sources/Files/examples/*.swift
            """
        let outcome = try await Command.run(["-ec", script], of: shell)
        #expect(outcome.exitCode == 0, "\(outcome.errors)")
        #expect(outcome.text.contains("extension Files_File: HHSocketMessage.MessageBody {}"))
        #expect(outcome.text.contains("public enum Files_Transfer {"))
    }
}
