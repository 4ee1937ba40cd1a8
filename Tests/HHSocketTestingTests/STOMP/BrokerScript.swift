// SPDX-License-Identifier: Apache-2.0
import HHSocketSTOMP
import HHSocketTesting
import NIOCore

/// A broker's rules, with frames as text: frames are `COMMAND name:value name:value|body`, with the values' spaces as
/// `_`.
struct BrokerScript {
    var machine: BrokerMachine

    /// - Parameter change: Changes the default configuration.
    init(_ change: (inout MockBroker.Configuration) -> Void = { _ in }) {
        var configuration = MockBroker.Configuration()
        change(&configuration)
        self.machine = BrokerMachine(configuration)
    }

    /// Opens a connection, and connects in a version.
    mutating func connect(_ connection: Int, _ version: STOMPVersion = .v1_2) {
        self.machine.opened(connection)
        _ = self.say(connection, version == .v1_0 ? "CONNECT" : "CONNECT accept-version:\(version) host:/")
    }

    static func frame(_ text: String) -> STOMPFrame {
        let parts = text.split(separator: "|", maxSplits: 1).map(String.init)
        var words = parts[0].split(separator: " ").map(String.init)
        var frame = STOMPFrame(STOMPCommand(rawValue: words.removeFirst()))
        for word in words {
            let header = word.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
            frame.headers.add(name: header[0], value: header[1].replacingUnderscores)
        }
        if parts.count > 1 { frame.body.writeString(parts[1]) }
        return frame
    }

    /// Receives a frame; returns the actions in the notation of ``show(_:)``.
    mutating func say(_ connection: Int, _ text: String, confirms: Bool = true) -> [String] {
        self.machine.receivedFrame(Self.frame(text), on: connection, confirms: confirms).map(Self.show)
    }

    mutating func publish(_ text: String, to destination: String, headers: STOMPHeaders = [:]) -> [String]? {
        self.machine.publish(ByteBuffer(string: text), to: destination, headers: headers)?.map(Self.show)
    }

    mutating func end(_ connection: Int) -> [String] { self.machine.ended(connection).map(Self.show) }

    func queue(_ name: String) -> [String] {
        self.machine.messages(in: "/queue/\(name)").map { String(buffer: $0.body) }
    }

    /// An action as text: `0 a! s:1` is the message `a`, delivered again, to subscription 1 of connection 0, and `0
    /// ERROR: message` an error.
    static func show(_ action: BrokerMachine.Action) -> String {
        switch action {
        case .send(let frame, let connection): "\(connection) \(self.show(frame))"
        case .agree(let version, let connection): "\(connection) speaks \(version)"
        case .beat(let connection, let sends, let expects):
            "\(connection) beats \(sends.map { "\($0)" } ?? "never"), \(expects.map { "\($0)" } ?? "never")"
        case .close(let connection): "\(connection) closes"
        }
    }

    private static func show(_ frame: STOMPFrame) -> String {
        switch frame.command {
        case .message:
            String(buffer: frame.body) + (frame.headers["redelivered"] == "true" ? "!" : "")
                + (frame.headers["subscription"].map { " s:\($0)" } ?? "")
        case .receipt:
            "receipt \(frame.headers["receipt-id"] ?? "")"
        case .error:
            "ERROR: \(frame.headers["message"] ?? "")"
                + (frame.headers["receipt-id"].map { ", receipt \($0)" } ?? "")
        default:
            "\(frame)"
        }
    }
}

extension String {
    fileprivate var replacingUnderscores: String { String(self.map { $0 == "_" ? " " : $0 }) }
}
