// SPDX-License-Identifier: Apache-2.0
package import HHSocket
package import HHSocketRPC

extension SocketClient {
    /// A client of these servers that is connecting.
    package static func connecting(
        to servers: Endpoint...,
        configure: (inout SocketClient.Configuration) -> Void = { _ in }
    ) -> SocketClient {
        let client = Self.idle(servers, configure)
        client.connect()
        return client
    }

    /// A client of these servers that is connecting, and all of its events, even those of a connection that ends before
    /// the next line runs.
    package static func connectingWithEvents(
        to servers: Endpoint...,
        configure: (inout SocketClient.Configuration) -> Void = { _ in }
    ) -> (client: SocketClient, events: AsyncStream<SocketEvent>) {
        let client = Self.idle(servers, configure)
        let events = client.events
        client.connect()
        return (client, events)
    }

    /// The error of a call that times out after it was sent. `request` must not be answered.
    ///
    /// The call is made once the client is connected, with a longer timeout as long as it times out before it is sent.
    package func errorOfUnansweredCall(_ request: SocketRequest) async throws -> SocketError {
        try await self.connected()
        return try await withGrowingTimeout { timeout in
            var request = request
            request.timeout = timeout
            let call = request
            return try await socketError { () throws(SocketError) in _ = try await self.data(for: call) }
        } until: {
            $0.code != .timeout || $0.delivery != .notSent
        }
    }

    private static func idle(
        _ servers: [Endpoint],
        _ configure: (inout SocketClient.Configuration) -> Void
    ) -> SocketClient {
        var configuration = SocketClient.Configuration(servers: servers)
        configuration.timeout = patience * 2
        configuration.socket.backoff.base = .milliseconds(20)
        configure(&configuration)
        return SocketClient(configuration: configuration)
    }
}

extension Endpoint {
    /// A server on 127.0.0.1, by a spelling that only the system's resolver reads. So it does not count as a server on
    /// this machine, which requires no network.
    package var asIfElsewhere: Endpoint { Endpoint(host: "127.1", port: self.port) }
}

/// The error of the first attempt to connect that fails.
package func failedAttempt(
    of events: some AsyncSequence<SocketEvent, Never> & Sendable,
    fileID: String = #fileID,
    line: Int = #line
) async throws -> SocketError {
    let event = try await first(of: events, "a failed attempt", fileID: fileID, line: line) {
        if case .connectFailed = $0 { true } else { false }
    }
    guard case .connectFailed(let error) = event else { throw Unexpected(description: "\(event)") }
    return error
}
