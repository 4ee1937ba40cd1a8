// SPDX-License-Identifier: Apache-2.0
package import HHSocket
import HHSocketRPC

/// The error that `body` throws.
package func socketError(_ body: () async throws(SocketError) -> Void) async throws -> SocketError {
    do throws(SocketError) {
        try await body()
    } catch {
        return error
    }
    throw Unexpected(description: "nothing was thrown")
}
