import HHSocketRPC
import TestSupport
import Testing

/// The client of `README.md`, word for word. This file imports nothing else of HHSocket's or of a package's that it
/// needs, so that one import is enough for a user too.
@Suite struct ReadmeClientTests {
    @Test func theExampleIsInThisFile() throws {
        #expect(try DocumentationPage("README.md", section: "A client").shortcomings() == [])
    }

    /// Compiled, for its servers are nowhere.
    private func example() async throws {
        let servers = [Endpoint(host: "im1.example.com", port: 7000), Endpoint(host: "im2.example.com", port: 7000)]
        let client = SocketClient(configuration: .init(servers: servers))
        client.connect()

        // The type says which call it is, as the path does in HTTP.
        let request = SocketRequest(type: 101, body: "Ann", timeout: .seconds(8))
        let response = try await client.data(for: request)  // cancelling the Swift task cancels the call
        print(response.string)

        let task = client.dataTask(with: request) { result in print(result) }  // Result<SocketResponse, SocketError>
        task.resume()
        task.cancel()

        for await push in client.pushes(ofType: 2001) {
            print(push.string)
        }
    }

    /// Names of other modules that the API speaks of, with the one import above.
    @Test func oneImportBringsWhatTheAPISpeaksOf() {
        var configuration = SocketClient.Configuration(servers: [Endpoint(host: "127.0.0.1", port: 7000)])
        configuration.socket.logger = .init(label: "test")
        let group: (any EventLoopGroup)? = nil
        configuration.socket.eventLoopGroup = group
        configuration.socket.heartbeat = HeartbeatPolicy(payload: ByteBuffer(string: "alive"))
        var request = SocketRequest(type: 101, body: ByteBuffer(string: "hello"))
        let deadline: NIODeadline = .now() + .seconds(30)
        request.deadline = deadline
        #expect(request.deadline.map { $0 - deadline } == TimeAmount.zero)
        let message = Google_Protobuf_StringValue()
        #expect(message.value.isEmpty)
        #expect(SocketError(.timeout, message: "").code == .timeout && Status.ok.rawValue == 200)
        #expect(CompressionPolicy(minimumLength: 1).minimumLength == 1)
    }
}
