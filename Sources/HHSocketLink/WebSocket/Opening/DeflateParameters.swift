// SPDX-License-Identifier: Apache-2.0
/// A reason why parameters of permessage-deflate violate RFC 7692.
package enum DeflateFault: Error, Hashable, Sendable {
    case unknownParameter
    case repeatedParameter
    /// A value where none is allowed.
    case unexpectedValue
    /// No value where one is needed.
    case missingValue
    /// A window that has not 8 to 15 bits, without a leading zero.
    case windowBits
    /// An answer that allows the server more than the offer, or the client more than it can.
    case exceedsOffer
}

extension DeflateFault: CustomStringConvertible {
    package var description: String {
        switch self {
        case .unknownParameter: "a parameter is unknown"
        case .repeatedParameter: "a parameter occurs twice"
        case .unexpectedValue: "a parameter that takes no value has one"
        case .missingValue: "a parameter has no value"
        case .windowBits: "a window does not have 8 to 15 bits"
        case .exceedsOffer: "it goes beyond what was offered"
        }
    }
}

/// The parameters of one element of `Sec-WebSocket-Extensions` (RFC 7692, section 7.1), an offer's or an answer's.
package struct DeflateParameters: Hashable, Sendable {
    static let extensionName = "permessage-deflate"

    package var serverNoContextTakeover = false
    package var clientNoContextTakeover = false
    /// The value of `server_max_window_bits`, if present.
    package var serverWindowBits: Int?
    /// Whether `client_max_window_bits` is present.
    package var limitsClientWindow = false
    /// The value of `client_max_window_bits`. In an offer it may have none.
    package var clientWindowBits: Int?

    package init() {}

    init(_ parameters: [WebSocketExtension.Parameter]) throws(DeflateFault) {
        for parameter in parameters {
            switch parameter.name {
            case "server_no_context_takeover":
                try Self.set(&self.serverNoContextTakeover, parameter)
            case "client_no_context_takeover":
                try Self.set(&self.clientNoContextTakeover, parameter)
            case "server_max_window_bits":
                guard self.serverWindowBits == nil else { throw .repeatedParameter }
                guard let value = parameter.value else { throw .missingValue }
                self.serverWindowBits = try Self.windowBits(value)
            case "client_max_window_bits":
                guard !self.limitsClientWindow else { throw .repeatedParameter }
                self.limitsClientWindow = true
                if let value = parameter.value { self.clientWindowBits = try Self.windowBits(value) }
            default:
                throw .unknownParameter
            }
        }
    }

    private static func set(_ flag: inout Bool, _ parameter: WebSocketExtension.Parameter) throws(DeflateFault) {
        guard !flag else { throw .repeatedParameter }
        guard parameter.value == nil else { throw .unexpectedValue }
        flag = true
    }

    private static func windowBits(_ text: String) throws(DeflateFault) -> Int {
        guard text.utf8.first != UInt8(ascii: "0"),
            let bits = HTTPSyntax.number(text.utf8, limit: 99), DeflatePolicy.windowBits.contains(bits)
        else { throw .windowBits }
        return bits
    }
}

extension DeflateParameters: CustomStringConvertible {
    /// The element of `Sec-WebSocket-Extensions`.
    package var description: String {
        var text = Self.extensionName
        if self.serverNoContextTakeover { text += "; server_no_context_takeover" }
        if self.clientNoContextTakeover { text += "; client_no_context_takeover" }
        if let bits = self.serverWindowBits { text += "; server_max_window_bits=\(bits)" }
        if self.limitsClientWindow { text += "; client_max_window_bits" }
        if let bits = self.clientWindowBits { text += "=\(bits)" }
        return text
    }
}
