// SPDX-License-Identifier: Apache-2.0
/// A reason why a text is not a URL of a WebSocket. None of them quotes the text, whose query may be a secret.
package enum WebSocketURLFault: Error, Hashable, Sendable {
    case noScheme
    case unknownScheme
    /// A space or a control character.
    case illegalCharacter
    case notASCII
    case fragment
    case userInformation
    case host
    case port
    case queryOfListener
    /// A path that does not begin with a slash.
    case path
}

extension WebSocketURLFault: CustomStringConvertible {
    /// The rest of a sentence whose subject is the URL.
    package var description: String {
        switch self {
        case .noScheme: "has no scheme, such as wss://"
        case .unknownScheme: "has a scheme that cannot be used here"
        case .illegalCharacter: "has a space or a control character; write them as %20 and so on"
        case .notASCII: "has a character outside of ASCII; write it as %xx, in the host's name as xn--…"
        case .fragment: "has a fragment, which a WebSocket's cannot have; write # as %23"
        case .userInformation: "has a user, which a WebSocket's cannot have; set a header field Authorization"
        case .host: "has no valid host; an IPv6 address stands in brackets"
        case .port: "has a port that is not a number from 0 to 65535"
        case .path: "has a path that does not begin with /"
        case .queryOfListener: "has a query, without which a listener compares paths"
        }
    }
}
