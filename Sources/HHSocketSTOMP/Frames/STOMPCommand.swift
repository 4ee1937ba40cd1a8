// SPDX-License-Identifier: Apache-2.0
/// The first line of a frame. It consists of upper-case letters of ASCII, digits, `-` and `_`, and begins with a
/// letter.
public enum STOMPCommand: Hashable, Sendable {
    // MARK: Those of a client

    case connect
    /// `CONNECT` for servers of 1.1 and later; it lets a server distinguish STOMP from other protocols.
    case stomp
    case send
    case subscribe
    case unsubscribe
    case ack
    case nack
    case begin
    case commit
    case abort
    case disconnect

    // MARK: Those of a server

    case connected
    case message
    case receipt
    case error

    // MARK: Others

    /// A command that the specification does not have, as the line without its end.
    case other(String)

    package init(rawValue: String) {
        self = Self.known.first { $0.rawValue == rawValue } ?? .other(rawValue)
    }

    /// The line, without its end.
    package var rawValue: String {
        switch self {
        case .connect: "CONNECT"
        case .stomp: "STOMP"
        case .send: "SEND"
        case .subscribe: "SUBSCRIBE"
        case .unsubscribe: "UNSUBSCRIBE"
        case .ack: "ACK"
        case .nack: "NACK"
        case .begin: "BEGIN"
        case .commit: "COMMIT"
        case .abort: "ABORT"
        case .disconnect: "DISCONNECT"
        case .connected: "CONNECTED"
        case .message: "MESSAGE"
        case .receipt: "RECEIPT"
        case .error: "ERROR"
        case .other(let line): line
        }
    }
}

extension STOMPCommand: CustomStringConvertible {
    public var description: String { STOMPText.shown(self.rawValue.utf8) }
}

extension STOMPCommand {
    /// The commands by which a client sends frames.
    package static let ofClients: [STOMPCommand] = [
        .connect, .stomp, .send, .subscribe, .unsubscribe, .ack, .nack, .begin, .commit, .abort, .disconnect,
    ]

    /// The commands by which a server sends frames.
    package static let ofServers: [STOMPCommand] = [.connected, .message, .receipt, .error]

    /// The usual commands, the frequent ones first.
    private static let known: [STOMPCommand] =
        [.message, .send, .receipt, .ack] + Self.ofServers + Self.ofClients

    /// The command of a line; nil if the line is not a command.
    init?(line: UnsafeRawBufferPointer) {
        for command in Self.known where command.rawValue.utf8.count == line.count {
            if line.elementsEqual(command.rawValue.utf8) {
                self = command
                return
            }
        }
        guard Self.isValid(line) else { return nil }
        self = .other(String(decoding: line, as: UTF8.self))
    }

    var isValid: Bool { Self.isValid(self.rawValue.utf8) }

    private static func isValid(_ line: some Collection<UInt8>) -> Bool {
        guard let first = line.first, Self.mayBegin(first) else { return false }
        return line.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"),
                UInt8(ascii: "_"):
                true
            default: false
            }
        }
    }

    /// Whether a command may begin with this byte.
    static func mayBegin(_ byte: UInt8) -> Bool { (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(byte) }

    /// Whether the headers of such a frame have no escapes in any version.
    var hasPlainHeaders: Bool { self == .connect || self == .stomp || self == .connected }

    /// Whether a frame may have a body.
    ///
    /// - Parameter version: Nil before the agreement.
    func mayHaveBody(in version: STOMPVersion?) -> Bool {
        switch version {
        case .v1_1, .v1_2: self == .send || self == .message || self == .error
        case .v1_0, nil: true
        }
    }
}
