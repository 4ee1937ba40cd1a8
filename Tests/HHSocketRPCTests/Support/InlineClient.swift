// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting

@testable import HHSocketRPC

extension SocketClient {
    /// Returns a client of `server` whose handlers run on the socket thread, and whose calls wait for the connection.
    static func callingBackInline(
        to server: MockServer,
        _ configure: (inout Configuration) -> Void = { _ in }
    ) -> SocketClient {
        SocketClient.connecting(to: server.endpoint) {
            $0.socket.callbackQueue = .socketThread
            $0.waitsForConnectivity = true
            configure(&$0)
        }
    }
}
