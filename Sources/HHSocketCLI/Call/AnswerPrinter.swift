// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import NIOCore

/// Prints the outcome of calls: payloads on stdout, errors on stderr.
struct AnswerPrinter {
    /// The request's type.
    var type: UInt32
    var json: Bool
    /// Whether to print the call's metrics.
    var metrics: Bool
    /// Whether to print the answers' metadata.
    var metadata: Bool
    /// Converts the body of an answer with status 200 to JSON; nil to print answers as they are.
    var message: ((ByteBuffer) throws -> PayloadJSON.Printed)?
    /// Whether an answer could not be printed completely.
    private(set) var hasFailed = false

    init(type: UInt32, json: Bool, metrics: Bool, metadata: Bool = false) {
        self.type = type
        self.json = json
        self.metrics = metrics
        self.metadata = metadata
    }

    mutating func print(_ outcome: MeasuredOutcome) throws(StandardOutput.Failure) {
        if !self.json {
            self.printMetrics(outcome)
            self.printMetadata(outcome)
        }
        switch outcome.result {
        case .success(let response):
            let message = self.read(response.body)
            if self.message != nil, !self.json {
                guard let message else { return }
                return try StandardOutput.write(message.text(isIndented: StandardOutput.isTerminal) + "\n")
            }
            try self.print(
                response.body,
                message: message,
                type: response.type,
                serial: response.serial,
                status: response.status,
                server: response.endpoint,
                outcome
            )
        case .failure(let error):
            StandardError.line("error: \(Self.code(of: error)): \(error.message.inOneLine)")
            // The payload of the answer, if one arrived.
            guard error.delivery == .answered, let body = error.body, let status = error.code.status else {
                if self.json { self.printMetrics(outcome) }
                return
            }
            try self.print(
                body,
                type: self.type,
                serial: error.serial ?? 0,
                status: status,
                server: error.endpoint,
                outcome
            )
        }
    }

    mutating func print(_ item: StreamedItem) throws(StandardOutput.Failure) {
        let message = self.read(item.body)
        guard self.json else {
            if self.message != nil {
                guard let message else { return }
                return try StandardOutput.write(message.text(isIndented: StandardOutput.isTerminal) + "\n")
            }
            var line = item.body
            line.writeString("\n")
            return try StandardOutput.write(line)
        }
        var object = self.object(serial: item.serial, self.type, .partial, after: item.duration, from: item.server)
        if let message { object.add("message", message) } else { object.addBody(item.body) }
        try StandardOutput.write(object.line)
    }

    /// Returns the answer in JSON, if requested; nil, too, if it cannot be read as the message, which is reported.
    private mutating func read(_ body: ByteBuffer) -> JSONValue? {
        do {
            guard let printed = try self.message?(body) else { return nil }
            for reason in printed.faults {
                StandardError.line("error: A part of the answer cannot be represented in JSON: \(reason.inOneLine)")
                self.hasFailed = true
            }
            return printed.json
        } catch {
            StandardError.line("error: The answer cannot be read: \("\(error)".inOneLine)")
            self.hasFailed = true
            return nil
        }
    }

    private func printMetrics(_ outcome: MeasuredOutcome) {
        if self.metrics, let metrics = outcome.metrics { StandardError.line(MetricsPrinter.text(metrics)) }
    }

    private func printMetadata(_ outcome: MeasuredOutcome) {
        guard self.metadata else { return }
        for (name, value) in outcome.metadata.sorted(by: { $0.key < $1.key }) {
            StandardError.line("metadata \(name.escaped): \(value.escaped)")
        }
    }

    /// Returns the code of an error, or of its cause if the call merely found no connection.
    private static func code(of error: SocketError) -> SocketError.Code {
        guard error.code == .notConnected, let cause = error.underlying as? SocketError else { return error.code }
        return cause.code
    }

    private func print(
        _ body: ByteBuffer,
        message: JSONValue? = nil,
        type: UInt32,
        serial: UInt32,
        status: Status,
        server: Endpoint?,
        _ outcome: MeasuredOutcome
    ) throws(StandardOutput.Failure) {
        guard self.json else { return try StandardOutput.write(body) }
        var object = self.object(serial: serial, type, status, after: outcome.duration, from: server)
        if self.metrics, let metrics = outcome.metrics { MetricsPrinter.add(metrics, to: &object) }
        if self.metadata {
            let values = outcome.metadata.sorted { $0.key < $1.key }
            object.add("metadata", .object(values.map { .init(name: $0.key, value: .string($0.value)) }))
        }
        if let message { object.add("message", message) } else { object.addBody(body) }
        try StandardOutput.write(object.line)
    }

    /// Returns an object with the members of every answer and item.
    private func object(
        serial: UInt32,
        _ type: UInt32,
        _ status: Status,
        after duration: Duration,
        from server: Endpoint?
    ) -> JSONLine {
        var object = JSONLine()
        object.add("serial", serial)
        object.add("type", type)
        object.add("status", status.rawValue)
        object.add("ms", duration.inMilliseconds, digits: 3)
        object.add("server", server?.description ?? "")
        return object
    }
}
