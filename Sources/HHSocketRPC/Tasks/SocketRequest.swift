// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// A request to a server.
///
/// The request has the properties of its ``options`` too: `request.timeout` is `request.options.timeout`.
@dynamicMemberLookup
public struct SocketRequest: Sendable, Hashable {
    /// The number that identifies the RPC: 16 to 0x1FFFFFFF in the standard format; in others, one that their layout
    /// reserves for applications.
    public var type: UInt32
    /// The payload.
    public var body: ByteBuffer
    /// The options of the call.
    public var options: CallOptions

    public subscript<Value>(dynamicMember path: WritableKeyPath<CallOptions, Value>) -> Value {
        get { self.options[keyPath: path] }
        set { self.options[keyPath: path] = newValue }
    }

    /// The number of bytes that the request holds while it waits.
    var waitingLength: Int { self.body.readableBytes + self.options.metadataLength }

    /// - Parameters:
    ///   - type: The number that identifies the RPC: 16 to 0x1FFFFFFF in the standard format. Others fail with
    ///     `invalidArgument`.
    ///   - body: The payload; empty by default.
    ///   - timeout: The time that the whole call may take; nil, the default, for the client's timeout.
    ///   - header: The custom header fields of other wire formats, by name; by default as in the configuration.
    @inlinable
    public init(
        type: UInt32,
        body: ByteBuffer = ByteBuffer(),
        timeout: Duration? = nil,
        header: [String: [UInt8]] = [:]
    ) {
        self.init(type: type, body: body, options: CallOptions(timeout: timeout))
        if !header.isEmpty { self.options.header = header }
    }

    /// Creates a request with options.
    @inlinable
    public init(type: UInt32, body: ByteBuffer, options: CallOptions) {
        self.type = type
        self.body = body
        self.options = options
    }

    /// Creates a request with a payload of bytes, such as `Data` or `[UInt8]`.
    public init(
        type: UInt32,
        body: some Collection<UInt8>,
        timeout: Duration? = nil,
        header: [String: [UInt8]] = [:]
    ) {
        self.init(type: type, body: ByteBuffer(bytes: body), timeout: timeout, header: header)
    }

    /// Creates a request with the UTF-8 of a text as payload.
    public init(
        type: UInt32,
        body: String,
        timeout: Duration? = nil,
        header: [String: [UInt8]] = [:]
    ) {
        self.init(type: type, body: ByteBuffer(string: body), timeout: timeout, header: header)
    }
}
