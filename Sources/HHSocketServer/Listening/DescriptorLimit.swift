// SPDX-License-Identifier: Apache-2.0
#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// The process' limit of file descriptors.
enum DescriptorLimit {
    /// The limit is not raised beyond this number, unless a server's limits require it: some programs close all
    /// descriptors that they may have, one by one, when they start.
    static let largest = 1 << 20

    /// The number of descriptors without which a process can hardly do anything else.
    static let fewest = 64

    /// The number of descriptors that a server reserves for files, logs, outgoing connections, and for itself.
    static func reserve(of limit: Int, loops: Int) -> Int { self.fewest + limit / 16 + 4 * loops }

    /// The descriptors that are kept for a shortage. They belong to the reserve.
    static func spares(of limit: Int) -> Int { min(96, max(8, limit / 16)) }

    /// Raises the soft limit to the hard one, if the system allows it.
    ///
    /// - Parameter wanted: The number of descriptors wanted, if that is more than ``largest``.
    /// - Returns: The soft limit now; nil if the system does not report it.
    static func raise(wanted: Int) -> Int? {
        var limits = rlimit()
        guard getrlimit(self.resource, &limits) == 0 else { return nil }
        let wanted = rlim_t(max(self.largest, min(wanted, Int(Int32.max))))
        // macOS reports an infinite hard limit and refuses more than OPEN_MAX.
        for target in [min(wanted, limits.rlim_max), min(10_240, limits.rlim_max)] where target > limits.rlim_cur {
            var raised = limits
            raised.rlim_cur = target
            guard setrlimit(self.resource, &raised) == 0 else { continue }
            limits = raised
            break
        }
        return Int(clamping: limits.rlim_cur)
    }

    /// The soft limit now; nil if the system does not say.
    static var current: Int? {
        var limits = rlimit()
        guard getrlimit(self.resource, &limits) == 0 else { return nil }
        return Int(clamping: limits.rlim_cur)
    }

    #if canImport(Glibc)
    private static var resource: __rlimit_resource_t { __rlimit_resource_t(RLIMIT_NOFILE.rawValue) }
    #else
    private static var resource: CInt { CInt(RLIMIT_NOFILE) }
    #endif
}
