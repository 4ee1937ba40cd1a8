// SPDX-License-Identifier: Apache-2.0
import CHHSocket

/// Memory that was freed and that the C library keeps for later.
package enum FreeMemory {
    /// Gives it back to the system. It takes milliseconds where there is much, for which other threads may have to wait
    /// that allocate.
    package static func giveBack() {
        _ = chhsocket_return_free_memory()
    }
}
