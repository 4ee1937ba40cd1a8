// SPDX-License-Identifier: Apache-2.0
import CHHSocket

/// Memory that was freed and that the C library keeps for later.
package enum FreeMemory {
    /// Returns free memory to the system. If there is much, this takes milliseconds, in which other threads that
    /// allocate may have to wait.
    package static func giveBack() {
        _ = chhsocket_return_free_memory()
    }
}
