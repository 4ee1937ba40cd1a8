// SPDX-License-Identifier: Apache-2.0
import HHSocketSystem

/// The thread sanitizer. On Linux it does not see that resuming a continuation orders the accesses before and after it,
/// and would report data that is passed this way.
@usableFromInline
package enum ThreadSanitizer {
    /// Whether this process runs under it.
    @usableFromInline package static let isRunning: Bool = {
        guard let program = dlopen(nil, RTLD_NOW) else { return false }
        defer { dlclose(program) }
        return dlsym(program, "__tsan_init") != nil
    }()
}
