// SPDX-License-Identifier: Apache-2.0
package import HHSocket
import NIOCore
import NIOPosix

/// A port that accepts connections and sends nothing.
package final class SilentPort: Sendable {
    package let endpoint: Endpoint
    private let channel: any Channel

    package init(host: String) async throws {
        self.channel = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .bind(host: host, port: 0).get()
        self.endpoint = Endpoint(host: host, port: self.channel.localAddress?.port ?? 0)
    }

    deinit { self.channel.close(promise: nil) }
}
