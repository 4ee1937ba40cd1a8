// SPDX-License-Identifier: Apache-2.0
import CHHSocket

/// The processor time of a thread.
package enum ThreadTime {
    /// The time that the calling thread has run, in seconds.
    package static var seconds: Double { Double(chhsocket_thread_time()) / 1e9 }
}
