// SPDX-License-Identifier: Apache-2.0
#if os(Linux)
import Foundation
import Logging
import TestSupport

/// Sets the number of file descriptors that this process may have, permanently; nil for the greatest number.
func limitDescriptors(_ count: Int?) throws {
    var limit = rlimit()
    #if canImport(Musl)
    let resource = RLIMIT_NOFILE
    #else
    let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
    #endif
    guard getrlimit(resource, &limit) == 0 else { throw Unexpected(description: "getrlimit: \(errno)") }
    if let count { limit.rlim_max = min(limit.rlim_max, rlim_t(count)) }
    limit.rlim_cur = limit.rlim_max
    guard setrlimit(resource, &limit) == 0 else { throw Unexpected(description: "setrlimit: \(errno)") }
}

/// A full pipe without a reader.
final class FullPipe: Sendable {
    private let reader: CInt
    private let writer: CInt
    private let level: Logger.Level

    init(level: Logger.Level) throws {
        signal(SIGPIPE, SIG_IGN)
        var ends: [CInt] = [0, 0]
        guard pipe(&ends) == 0 else { throw Unexpected(description: "pipe: \(errno)") }
        (self.reader, self.writer, self.level) = (ends[0], ends[1], level)
        _ = fcntl(self.writer, F_SETFL, O_NONBLOCK)
        let page = [UInt8](repeating: 0x0A, count: 4_096)
        while write(self.writer, page, page.count) > 0 {}
        while write(self.writer, page, 1) > 0 {}
        _ = fcntl(self.writer, F_SETFL, 0)
    }

    /// A logger that writes into it, and so blocks forever.
    var logger: Logger {
        var logger = Logger(label: "unread") { _ in Handler(pipe: self) }
        logger.logLevel = self.level
        return logger
    }

    /// Makes all writes fail from now on.
    func close() { Foundation.close(self.reader) }

    private struct Handler: LogHandler {
        let pipe: FullPipe
        var metadata: Logger.Metadata = [:]
        var logLevel = Logger.Level.debug

        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { self.metadata[key] }
            set { self.metadata[key] = newValue }
        }

        func log(event: LogEvent) {
            let line = Array("\(event.message) \(self.metadata)\n".utf8)
            _ = write(self.pipe.writer, line, line.count)
        }
    }
}
#endif
