// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import TestSupport

@testable import HHSocketServer

extension SocketServer.Configuration {
    /// A configuration that differs from the default only in these limits.
    static func limited(_ change: (inout ServerLimits) -> Void) -> Self {
        var configuration = Self()
        change(&configuration.limits)
        return configuration
    }
}

extension Router {
    /// Handles requests of this type until they are cancelled, without the memory of a sleep.
    mutating func handleUntilCancelled(_ type: UInt32) {
        self.handle(type) { _, _ in
            try await untilCancelledWithoutATrace()
            return ByteBuffer()
        }
    }

    /// Handles streams of this type, whose items it does not take, until they are cancelled.
    mutating func streamUntilCancelled(_ type: UInt32) {
        self.stream(type, kind: .clientStreaming) { _, _ in
            try await untilCancelledWithoutATrace()
            return ByteBuffer()
        }
    }
}
