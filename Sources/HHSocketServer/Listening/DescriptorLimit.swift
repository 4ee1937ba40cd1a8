// SPDX-License-Identifier: Apache-2.0
import HHSocketSystem

/// The process' limit of file descriptors.
package enum DescriptorLimit {
    /// The limit is not raised beyond this number, unless a server's limits require it: some programs close all
    /// descriptors that they may have, one by one, when they start.
    static let largest = 1 << 20

    /// The number of descriptors without which a process can hardly do anything else.
    static let fewest = 64

    /// The number of descriptors that a server reserves for files, logs, outgoing connections, and for itself.
    static func reserve(of limit: Int, loops: Int) -> Int { self.fewest + limit / 16 + 4 * loops }

    /// A part of the reserve; those below are six of them, so that ``fewest`` remain for everything else.
    private static func part(of limit: Int) -> Int { limit / 16 / 6 }

    /// The descriptors that are kept for a shortage.
    static func spares(of limit: Int) -> Int { min(96, max(8, self.part(of: limit))) }

    /// The number of free descriptors below which no connection is accepted: what accepting, and the threads of a
    /// store, may take before the number is checked again.
    static func margin(of limit: Int) -> Int { min(128, max(8, self.part(of: limit))) }

    /// The number of connections beyond the maximum that may be open while others are closed for them, and of those
    /// that are being refused.
    static func beyond(of spare: Int) -> Int { max(1, spare / 8) }

    /// The number of files that stores may keep open between two steps of their clients.
    package static func files(of limit: Int) -> Int { min(1_024, max(16, 2 * self.part(of: limit))) }

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
    package static var current: Int? {
        var limits = rlimit()
        guard getrlimit(self.resource, &limits) == 0 else { return nil }
        return Int(clamping: limits.rlim_cur)
    }

    /// The number of descriptors that may still be opened; nil if the system reports no limit.
    ///
    /// It opens none to find out, and takes none either: two threads that tried would exhaust them for each other.
    static var free: Int? { self.current.map { max(0, $0 - self.open(below: $0)) } }

    /// The number of open descriptors.
    private static func open(below limit: Int) -> Int {
        #if os(Linux) || os(Android)
        // Since Linux 6.2 that is the size of this folder; before it is 0.
        var status = stat()
        if stat("/proc/self/fd", &status) == 0, status.st_size > 0 { return Int(status.st_size) }
        #endif
        return (0..<limit).reduce(0) { fcntl(CInt($1), F_GETFD) == -1 ? $0 : $0 + 1 }
    }

    #if canImport(Glibc)
    private static var resource: __rlimit_resource_t { __rlimit_resource_t(RLIMIT_NOFILE.rawValue) }
    #else
    private static var resource: CInt { CInt(RLIMIT_NOFILE) }
    #endif
}
