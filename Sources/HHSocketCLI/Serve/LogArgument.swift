// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import Logging

/// `--log`: the level of the log on stderr.
enum LogArgument {
    static let help = ArgumentHelp(
        """
        Log to stderr from this level on: trace, debug, info, notice, warning, error or critical. Nothing is logged by \
        default.
        """,
        valueName: "level"
    )

    static func parse(_ text: String) throws -> Logger.Level {
        guard let level = Logger.Level(rawValue: text) else {
            let levels = Logger.Level.allCases.map(\.rawValue).joined(separator: ", ")
            throw ValidationError("the levels are \(levels)")
        }
        return level
    }

    /// Creates a logger to stderr. swift-log's default would write to stdout, which is for payloads and addresses.
    ///
    /// - Parameter level: The lowest level to log; nil for no logging.
    static func logger(_ level: Logger.Level?) -> Logger {
        let label = "hhsocket.server"
        guard let level else { return Logger(label: label, factory: { _ in SwiftLogNoOpLogHandler() }) }
        var logger = Logger(label: label, factory: { StreamLogHandler.standardError(label: $0) })
        logger.logLevel = level
        return logger
    }
}
