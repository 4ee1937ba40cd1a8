// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
package import Logging
import NIOConcurrencyHelpers
import NIOCore

/// The log of events that peers cause: at most ten lines a second for the whole server, written by a separate thread,
/// so that a log that is not read blocks no event loop. The next line has the number of omitted ones.
package final class PeerLog: Sendable {
    /// The largest length of a value, which the peer may choose.
    static let longestValue = 500

    private let time: SocketTime
    private let budget: NIOLockedValueBox<LogBudget>
    private let thread = BlockingThreads(count: 1)

    init(time: SocketTime = SocketTime()) {
        self.time = time
        self.budget = NIOLockedValueBox(LogBudget(now: time.now()))
    }

    /// Stops accepting lines. Waiting ones are written.
    func end() { self.thread.shutdown() }

    package func write(
        _ level: Logger.Level,
        _ message: Logger.Message,
        metadata: @autoclosure () -> Logger.Metadata,
        by logger: Logger
    ) {
        guard logger.logLevel <= level else { return }
        guard let suppressed = self.budget.withLockedValue({ $0.begin(now: self.time.now()) }) else { return }
        var metadata = metadata().mapValues { Logger.MetadataValue.printable($0) }
        if suppressed > 0 { metadata["suppressed"] = "\(suppressed)" }
        self.thread.submit { [budget, metadata] in
            logger.log(level: level, message, metadata: metadata)
            budget.withLockedValue { $0.written() }
        }
    }

    /// Writes a line that peers cannot cause often, regardless of their bound, because it must not be missing.
    func announce(
        _ level: Logger.Level,
        _ message: Logger.Message,
        metadata: Logger.Metadata,
        by logger: Logger
    ) {
        guard logger.logLevel <= level else { return }
        self.thread.submit { logger.log(level: level, message, metadata: metadata) }
    }

    /// The text on one line and in its own direction, limited in length.
    package static func printable(_ text: String) -> String {
        var printable = ""
        for scalar in text.unicodeScalars.prefix(self.longestValue) {
            let isShown =
                switch scalar.properties.generalCategory {
                case .control, .lineSeparator, .paragraphSeparator: false
                default: !scalar.properties.isBidiControl
                }
            printable += isShown ? String(scalar) : scalar.escaped(asASCII: true)
        }
        return text.unicodeScalars.count > self.longestValue ? printable + "…" : printable
    }
}

extension Logger.MetadataValue {
    /// A value that a peer may have chosen. Every such value of a log passes here: those of a call of the logger, and
    /// those of a logger itself.
    static func printable(_ value: some CustomStringConvertible) -> Self { .string(PeerLog.printable("\(value)")) }
}
