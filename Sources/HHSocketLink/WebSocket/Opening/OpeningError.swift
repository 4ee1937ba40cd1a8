// SPDX-License-Identifier: Apache-2.0
/// A reason why the client's side of an opening cannot begin, or did not succeed.
package enum OpeningError: HTTPHeadFailure, Hashable, Sendable {
    // MARK: Arguments

    case invalidURL(WebSocketURLFault)
    case invalidFieldName(String)
    case invalidFieldValue(of: String)
    /// A header field that the handshake writes itself.
    case ownedField(String)
    case repeatedField(String)
    case invalidSubprotocol(String)
    case repeatedSubprotocol(String)
    /// The bits of a window for permessage-deflate that this side cannot keep to.
    case invalidWindowBits(Int, in: ClosedRange<Int>)

    // MARK: The server's response

    case notHTTP
    case unsupportedVersion
    case headTooLong
    case malformedHead(HTTPHeadFault)
    /// The connection ended within the response.
    case closedEarly
    /// A 101 without `Upgrade: websocket`.
    case upgradeMissing
    /// A 101 without `Connection: Upgrade`.
    case connectionMissing
    case acceptMissing
    case acceptRepeated
    case acceptWrong
    case subprotocolNotOffered(String)
    case subprotocolSelectedTwice
    /// The server selected none of these.
    case subprotocolMissing([String])
    case malformedExtensions
    case extensionNotOffered(String)
    case extensionSelectedTwice
    case invalidDeflateAnswer(DeflateFault)

    // MARK: Redirects

    case invalidLocation(WebSocketURLFault)
    case repeatedLocation
    case tooManyRedirects
    /// A redirect from TLS to plain TCP.
    case redirectToPlain

    /// Whether the caller's arguments are at fault, and no attempt can succeed with them.
    package var isInvalidArgument: Bool {
        switch self {
        case .invalidURL, .invalidFieldName, .invalidFieldValue, .ownedField, .repeatedField, .invalidSubprotocol,
            .repeatedSubprotocol, .invalidWindowBits:
            true
        default:
            false
        }
    }
}

extension OpeningError: CustomStringConvertible {
    /// The error in one line, without values of header fields, queries and users, which may be secrets.
    package var description: String {
        self.argumentDescription ?? self.responseDescription
    }

    private var argumentDescription: String? {
        switch self {
        case .invalidURL(let fault):
            "the URL \(fault)"
        case .invalidFieldName(let name):
            "\"\(name)\" is not a header field name, which consists of letters, digits and !#$%&'*+-.^_`|~"
        case .invalidFieldValue(let name):
            "the value of the header field \(name) has a control character"
        case .ownedField(let name):
            "the header field \(name) is written by the handshake itself"
        case .repeatedField(let name):
            "the header field \(name) is given more than once"
        case .invalidSubprotocol(let name):
            "\"\(HTTPSyntax.shown(name.utf8))\" is no name of a subprotocol: "
                + "it takes letters, digits and !#$%&'*+-.^_`|~"
        case .repeatedSubprotocol(let name):
            "the subprotocol \(name) is given more than once"
        case .invalidWindowBits(let bits, let range):
            "a window of \(bits) bits cannot be agreed on: it has \(range.lowerBound) to \(range.upperBound)"
        default:
            nil
        }
    }

    private var responseDescription: String {
        switch self {
        case .notHTTP: "the peer does not speak HTTP"
        case .unsupportedVersion: "the server does not answer in HTTP/1.1"
        case .headTooLong: "the server's response is longer than \(HTTPSyntax.maximumHeadLength) bytes"
        case .malformedHead(let fault): "the server's response is malformed: \(fault)"
        case .closedEarly: "the server closed the connection before it had answered"
        case .upgradeMissing: "the server's 101 has no \"Upgrade: websocket\""
        case .connectionMissing: "the server's 101 has no \"Connection: Upgrade\""
        case .acceptMissing: "the server's 101 has no Sec-WebSocket-Accept"
        case .acceptRepeated: "the server's 101 has more than one Sec-WebSocket-Accept"
        case .acceptWrong: "the Sec-WebSocket-Accept of the server's 101 does not belong to our key"
        case .subprotocolNotOffered(let name):
            "the server selected the subprotocol \"\(HTTPSyntax.shown(name.utf8))\", which was not offered"
        case .subprotocolMissing(let names):
            "the server selected no subprotocol, where \(names.joined(separator: ", ")) was offered"
        case .subprotocolSelectedTwice: "the server's 101 has more than one Sec-WebSocket-Protocol"
        case .malformedExtensions: "the Sec-WebSocket-Extensions of the server's 101 is malformed"
        case .extensionNotOffered(let name):
            "the server selected the extension \(HTTPSyntax.shown(name.utf8)), which was not offered"
        case .extensionSelectedTwice: "the server selected permessage-deflate more than once"
        case .invalidDeflateAnswer(let fault): "the server's answer to permessage-deflate cannot be accepted: \(fault)"
        case .invalidLocation(let fault): "the server redirects to a URL that \(fault)"
        case .repeatedLocation: "the server redirects to more than one URL"
        case .tooManyRedirects: "the server redirected more than \(RedirectRules.maximum) times"
        case .redirectToPlain: "the server redirects from wss to ws"
        default: "the opening failed"
        }
    }
}
