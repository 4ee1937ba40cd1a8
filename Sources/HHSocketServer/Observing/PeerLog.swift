// SPDX-License-Identifier: Apache-2.0
import Logging
import NIOConcurrencyHelpers
import NIOCore

/// The log of what peers cause: at most ten lines a second for the whole server, which are written by a thread of their
/// own, so that a log that nobody reads holds up no event loop. What is left out is counted in the next line.
final class PeerLog: Sendable {
    /// A longer value is cut: it is the peer's to choose.
    static let longestValue = 500

    private let budget = NIOLockedValueBox(LogBudget(now: .now()))
    private let thread = BlockingThreads(count: 1)

    /// No line comes any more. Those that wait are written.
    func end() { self.thread.shutdown() }

    func write(
        _ level: Logger.Level,
        _ message: Logger.Message,
        _ metadata: Logger.Metadata,
        by logger: Logger
    ) {
        guard logger.logLevel <= level else { return }
        guard let suppressed = self.budget.withLockedValue({ $0.begin(now: .now()) }) else { return }
        var metadata = metadata.mapValues { Logger.MetadataValue.string(Self.printable("\($0)")) }
        if suppressed > 0 { metadata["suppressed"] = "\(suppressed)" }
        self.thread.submit { [budget, metadata] in
            logger.log(level: level, message, metadata: metadata)
            budget.withLockedValue { $0.written() }
        }
    }

    /// Writes a line that peers cannot cause often, beside their bound: one that must not be missing.
    func announce(
        _ level: Logger.Level,
        _ message: Logger.Message,
        _ metadata: Logger.Metadata,
        by logger: Logger
    ) {
        guard logger.logLevel <= level else { return }
        self.thread.submit { logger.log(level: level, message, metadata: metadata) }
    }

    /// On one line, and not too long.
    static func printable(_ text: String) -> String {
        var printable = ""
        for scalar in text.unicodeScalars.prefix(self.longestValue) {
            let isShown =
                switch scalar.properties.generalCategory {
                case .control, .lineSeparator, .paragraphSeparator: false
                default: true
                }
            printable += isShown ? String(scalar) : scalar.escaped(asASCII: true)
        }
        return text.unicodeScalars.count > self.longestValue ? printable + "…" : printable
    }
}
