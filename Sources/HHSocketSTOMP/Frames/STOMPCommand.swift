// SPDX-License-Identifier: Apache-2.0
/// The first line of a frame. It consists of upper-case letters of ASCII, digits, `-` and `_`, and begins with a
/// letter.
public struct STOMPCommand: RawRepresentable, Hashable, Sendable {
    // MARK: Those of a client

    public static let connect = STOMPCommand(rawValue: "CONNECT")
    /// `CONNECT` for servers of 1.1 and later; it lets a server distinguish STOMP from other protocols.
    public static let stomp = STOMPCommand(rawValue: "STOMP")
    public static let send = STOMPCommand(rawValue: "SEND")
    public static let subscribe = STOMPCommand(rawValue: "SUBSCRIBE")
    public static let unsubscribe = STOMPCommand(rawValue: "UNSUBSCRIBE")
    public static let ack = STOMPCommand(rawValue: "ACK")
    public static let nack = STOMPCommand(rawValue: "NACK")
    public static let begin = STOMPCommand(rawValue: "BEGIN")
    public static let commit = STOMPCommand(rawValue: "COMMIT")
    public static let abort = STOMPCommand(rawValue: "ABORT")
    public static let disconnect = STOMPCommand(rawValue: "DISCONNECT")

    // MARK: Those of a server

    public static let connected = STOMPCommand(rawValue: "CONNECTED")
    public static let message = STOMPCommand(rawValue: "MESSAGE")
    public static let receipt = STOMPCommand(rawValue: "RECEIPT")
    public static let error = STOMPCommand(rawValue: "ERROR")

    /// The line, without its end.
    public var rawValue: String

    public init(rawValue: String) {
        self.rawValue = rawValue
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
        self.init(rawValue: String(decoding: line, as: UTF8.self))
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
