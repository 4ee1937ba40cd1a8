// SPDX-License-Identifier: Apache-2.0
import HHSocket
import Logging

/// Logs the outcome of calls, each with the type and, if known, the serial and the server; never payloads or header
/// fields.
struct CallLog {
    private let logger: Logger

    init(_ logger: Logger) {
        self.logger = logger
    }

    func completed(_ type: UInt32, attempts: UInt32, at server: Endpoint?, with result: CallOutcome) {
        let level: Logger.Level = if case .success = result { .trace } else { .debug }
        guard self.logger.logLevel <= level else { return }
        var metadata: Logger.Metadata = ["type": "\(type)", "attempts": "\(attempts)"]
        if let server { metadata["server"] = "\(server)" }
        switch result {
        case .success(let response):
            metadata["serial"] = "\(response.serial)"
            self.logger.log(level: level, "call answered", metadata: metadata)
        case .failure(let error):
            metadata.merge(Self.metadata(of: error)) { $1 }
            self.logger.log(level: level, "call failed", metadata: metadata)
        }
    }

    func retries(_ type: UInt32, after error: SocketError, in delay: Duration) {
        var metadata = Self.metadata(of: error)
        metadata["type"] = "\(type)"
        metadata["delay"] = "\(delay)"
        self.logger.debug("call will be retried", metadata: metadata)
    }

    func isSentAgain(_ type: UInt32, after error: SocketError) {
        var metadata = Self.metadata(of: error)
        metadata["type"] = "\(type)"
        self.logger.debug("call will be sent to another server", metadata: metadata)
    }

    private static func metadata(of error: SocketError) -> Logger.Metadata {
        var metadata: Logger.Metadata = ["cause": "\(error.code)", "error": "\(error.message)"]
        // Only the error's type: the description of an app's error may be confidential.
        if error.code == .interceptorFailed {
            metadata["error"] = "\(error.underlying.map { "\(type(of: $0))" } ?? "")"
        }
        if let endpoint = error.endpoint { metadata["server"] = "\(endpoint)" }
        if let serial = error.serial { metadata["serial"] = "\(serial)" }
        return metadata
    }
}
