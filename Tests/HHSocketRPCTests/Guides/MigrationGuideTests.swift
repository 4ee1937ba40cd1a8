// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketRPC
import HHSocketTesting
import TestSupport
import Testing

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

/// The example of `Docs/MigratingFromURLSession.md`, word for word, and the names of its table.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct MigrationGuideTests {
    @Test func everyExampleOfThePageIsInThisFile() throws {
        let page = try DocumentationPage("Docs/MigratingFromURLSession.md")
        #expect(try page.shortcomings(allowing: ["FoundationNetworking"]) == [])
    }

    @Test func screen() async throws {
        let server = try await MockServer(.answer("seven"))
        let client = SocketClient.connecting(to: server.endpoint)

        func load() async throws -> String {
            let request = SocketRequest(type: 102, body: "page 7", timeout: .seconds(8))
            return try await client.data(for: request).string
        }

        #expect(try await load() == "seven")
    }

    /// The half with URLSession, which is only compiled, since its server does not exist.
    private struct ScreenWithURLSession {
        let session: URLSession

        func load() async throws -> String {
            guard let url = URL(string: "https://im1.example.com/page/7") else { throw URLError(.badURL) }
            var request = URLRequest(url: url)
            request.timeoutInterval = 8
            let (data, response) = try await session.data(for: request)
            guard (response as? HTTPURLResponse)?.statusCode == 200 else { throw URLError(.badServerResponse) }
            return String(decoding: data, as: UTF8.self)
        }
    }

    /// The names on the right side of the table exist.
    @Test func table() async throws {
        var configuration = SocketClient.Configuration(servers: [Endpoint(host: "127.0.0.1", port: 1)])
        configuration.waitsForConnectivity = true
        configuration.firstResponseTimeout = .seconds(4)
        configuration.timeout = .seconds(8)
        configuration.socket.callbackQueue = .default
        let client = SocketClient(configuration: configuration)
        var request = SocketRequest(type: 101, body: Data([1]), timeout: .seconds(8))
        request.header["sessionID"] = [7]
        request.header = [:]
        request.metadata["session-id"] = "7"
        request.metadata = [:]
        request.waitsForConnectivity = false
        let task = client.dataTask(with: request, on: .default) { _ in }
        task.priority = .high
        task.priority = 0.75
        #expect(task.state == .suspended)
        #expect(task.taskIdentifier == 1)
        #expect(task.originalRequest == request)
        #expect(task.countOfBytesSent == 0)
        #expect(task.countOfBytesReceived == 0)
        #expect(!task.progress.isFinished)
        client.cancelAllTasks()
        task.resume()
        try await eventually("the end") { task.state == .completed }
        client.finishTasksAndInvalidate()
        #expect(task.response == nil)
        #expect(task.error?.code == .notConnected)
        #expect(task.error?.delivery == .notSent)
        #expect(task.metrics?.attempts == 0)
        for code: SocketError.Code in [.timeout, .networkUnreachable, .connectionLost, .cancelled] {
            #expect(code != task.error?.code)
        }
    }
}
