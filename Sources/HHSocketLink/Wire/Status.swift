// SPDX-License-Identifier: Apache-2.0
/// The outcome of a request: the `status` word of a response or push frame.
///
/// Anything but ``ok`` is an error, including unlisted statuses. ``isTransient`` says whether a later attempt may
/// succeed, and ``SocketError/notExecuted`` whether the request may have been executed.
public struct Status: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
    public let rawValue: UInt32

    @inlinable
    public init(rawValue: UInt32) {
        self.rawValue = rawValue
    }

    /// A server's ping carries no verdict.
    @usableFromInline package static let ping = Status(rawValue: 0)
    public static let ok = Status(rawValue: 200)
    /// More answers to the same request follow. To a unary call this is an error.
    package static let partial = Status(rawValue: 206)
    public static let serverLostConnection = Status(rawValue: 300)
    public static let illegalLength = Status(rawValue: 301)
    /// The server's check of the request's checksum failed.
    public static let lostPacket = Status(rawValue: 302)
    public static let illegalFormat = Status(rawValue: 303)
    public static let notModified = Status(rawValue: 304)
    /// The server has no handler for the type; the request was not executed.
    public static let undefinedType = Status(rawValue: 401)
    public static let protobufFailed = Status(rawValue: 402)
    public static let database = Status(rawValue: 403)
    /// The handler failed in a way without its own status; a later attempt may succeed.
    public static let unknown = Status(rawValue: 404)
    public static let noPermission = Status(rawValue: 405)
    public static let deadlineExceeded = Status(rawValue: 408)
    public static let cancelledByServer = Status(rawValue: 409)
    public static let emptyProtobuf = Status(rawValue: 456)
    /// The server refused the request for load; it was not executed.
    public static let overloaded = Status(rawValue: 503)
    /// The server is shutting down; the request was not executed.
    public static let draining = Status(rawValue: 504)

    public var description: String { String(self.rawValue) }

    /// The name of an error that the protocol lists, as in the ``SocketError/Code`` of its answers.
    var name: String? {
        switch self {
        case .serverLostConnection: "serverLostConnection"
        case .illegalLength: "illegalLength"
        case .lostPacket: "lostPacket"
        case .illegalFormat: "illegalFormat"
        case .notModified: "notModified"
        case .undefinedType: "undefinedType"
        case .protobufFailed: "protobufFailed"
        case .database: "database"
        case .unknown: "unknown"
        case .noPermission: "noPermission"
        case .deadlineExceeded: "deadlineExceeded"
        case .cancelledByServer: "cancelledByServer"
        case .emptyProtobuf: "emptyProtobuf"
        case .overloaded: "overloaded"
        case .draining: "draining"
        default: nil
        }
    }

    /// The statuses that have names, by these.
    package static let named: [String: Status] = {
        let all: [Status] = [
            .serverLostConnection, .illegalLength, .lostPacket, .illegalFormat, .notModified, .undefinedType,
            .protobufFailed, .database, .unknown, .noPermission, .deadlineExceeded, .cancelledByServer,
            .emptyProtobuf, .overloaded, .draining,
        ]
        let pairs = all.compactMap { status in status.name.map { ($0, status) } }
        return Dictionary(uniqueKeysWithValues: pairs + [("ok", .ok)])
    }()
}
