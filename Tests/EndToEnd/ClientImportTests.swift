// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import TestSupport
import Testing

/// The file of a client requires one import: this file imports no other module of HHSocket or of its dependencies.
@Suite struct ClientImportTests {
    /// Uses names of other modules that occur in the API, with the one import above.
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
