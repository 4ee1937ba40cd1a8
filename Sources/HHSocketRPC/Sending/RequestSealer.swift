// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import Tracing

/// The making of payloads: a request, and the agreement of hello, become a frame's type and payload, or the error of a
/// request that cannot be sent.
struct RequestSealer: Sendable {
    /// The result of compressing a body.
    enum Deflated: Equatable {
        case smaller(ByteBuffer)
        case notSmaller
    }

    private static let nameBytes = Set("abcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_|~".utf8)
    private static let maximumNameLength = 128

    private let rules: FrameRules
    private let compression: CompressionPolicy?
    private let hello: HelloPolicy?
    private let tracer: (any Tracer)?
    /// The custom fields of requests without their own.
    private let customFields: Result<[UInt8]?, SocketError>

    /// - Parameter tracer: Adds the contexts of spans to metadata; nil for none.
    init(_ configuration: ClientConfiguration, _ rules: FrameRules, tracer: (any Tracer)?) {
        self.rules = rules
        self.compression = configuration.compression
        self.hello = configuration.hello
        self.tracer = tracer
        self.customFields = Result { () throws(SocketError) in try rules.customFields([:]) }
    }

    private var format: WireFormat { self.rules.format }
    private var maximumPayloadLength: Int { self.rules.configuration.maximumPayloadLength }

    /// Whether requests without their own custom fields have none.
    var addsNoFields: Bool {
        if case .success(nil) = self.customFields { true } else { false }
    }

    /// The custom fields of a request's frame.
    func customFields(of request: SocketRequest) throws(SocketError) -> [UInt8]? {
        request.options.isPlain
            ? try self.customFields.get() : try self.rules.customFields(request.options.header)
    }

    // MARK: Checks

    /// Refuses a request that can never be sent, so that it fails without waiting for a connection.
    ///
    /// - Parameter endpoint: The server that the client is connected to.
    /// - Throws: `invalidArgument` if its type is not a call's, or if its custom fields or metadata are invalid;
    ///   `frameTooLarge` if its cancellation is too long; `timeout` if its deadline has passed.
    func check(
        _ request: SocketRequest,
        now: NIODeadline,
        endpoint: @autoclosure () -> Endpoint?
    ) throws(SocketError) {
        guard self.format.isCallType(request.type) else {
            let types = self.format.layout.applicationTypes
            let owner = self.format.isApplicationType(request.type) ? "a push's" : "reserved"
            throw .invalid(
                "type \(request.type) is \(owner); use another one from \(types.lowerBound) to \(types.upperBound)"
            )
        }
        if let body = request.options.cancellationBody, body.readableBytes > self.maximumPayloadLength {
            throw SocketError(
                .frameTooLarge,
                message: """
                    a cancellationBody of \(body.readableBytes) bytes is over the limit of \
                    \(self.maximumPayloadLength) (maximumPayloadLength)
                    """
            )
        }
        _ = try self.customFields(of: request)
        guard request.options.asksForMetadata else { return }
        try self.checkMetadata(of: request)
        if let deadline = request.options.deadline {
            _ = try self.milliseconds(to: deadline, of: request, now: now, endpoint: endpoint())
        }
    }

    /// Checks the metadata and the idempotency key of a request.
    ///
    /// - Throws: `invalidArgument` if a name is invalid or a limit exceeded.
    private func checkMetadata(of request: SocketRequest) throws(SocketError) {
        guard request.options.metadata.count <= Envelope.maximumValues else {
            throw .invalid(
                "\(request.options.metadata.count) values of metadata are more than \(Envelope.maximumValues)"
            )
        }
        for name in request.options.metadata.keys {
            guard Self.isName(name) else {
                throw .invalid(
                    """
                    \"\(name.prefix(64))\" is no name for metadata: it takes 1 to \(Self.maximumNameLength) lower-case \
                    letters, digits, and some signs, all ASCII (SocketRequest.metadata)
                    """
                )
            }
        }
        let length = request.options.metadataLength
        guard length <= Envelope.maximumMetadataLength else {
            throw Self.invalid(EnvelopeError.metadataTooLong(length: length, limit: Envelope.maximumMetadataLength))
        }
        if let key = request.options.idempotencyKey, !(1...Envelope.maximumKeyLength).contains(key.utf8.count) {
            throw .invalid(
                "an idempotencyKey has 1 to \(Envelope.maximumKeyLength) bytes; this one has \(key.utf8.count)"
            )
        }
    }

    private static func invalid(_ error: EnvelopeError) -> SocketError {
        .invalid("the request cannot be sent: \(error) (SocketRequest.metadata)")
    }

    /// The milliseconds left until `deadline`, rounded up.
    private func milliseconds(
        to deadline: NIODeadline,
        of request: SocketRequest,
        now: NIODeadline,
        endpoint: @autoclosure () -> Endpoint?
    ) throws(SocketError) -> UInt64 {
        let left = (deadline - now).nanoseconds
        guard left > 0 else {
            throw SocketError(
                .timeout,
                message: """
                    the deadline of the request of type \(request.type) passed \(Duration(now - deadline)) before \
                    it could leave (SocketRequest.deadline)
                    """,
                endpoint: endpoint()
            )
        }
        return UInt64(left / 1_000_000) + (left % 1_000_000 > 0 ? 1 : 0)
    }

    // MARK: Compression

    /// The policy for compressing the request's body; nil if it is sent uncompressed.
    ///
    /// - Parameter peer: The connection that it is sent on.
    /// - Throws: `featureNotAgreed` if the request requires compression, and the connection does not have it.
    func compression(
        of request: SocketRequest,
        for peer: SocketResponse.Origin?
    ) throws(SocketError) -> CompressionPolicy? {
        switch request.options.compresses {
        case false?:
            return nil
        case true?:
            try self.require(.compression, for: "compresses", of: peer)
            // A body that is too large uncompressed would be too large for the server once decompressed.
            guard request.body.readableBytes <= self.maximumPayloadLength else { return nil }
            return CompressionPolicy(minimumLength: 0, level: (self.compression ?? CompressionPolicy()).level)
        case nil:
            guard let policy = self.compression, request.body.readableBytes >= policy.minimumLength,
                request.body.readableBytes <= self.maximumPayloadLength,
                peer?.agreement?.has(.compression) == true
            else { return nil }
            return policy
        }
    }

    /// The policy by which the request's body must be compressed on another thread first, because it is too long to be
    /// compressed on the socket thread; nil if it need not.
    ///
    /// - Throws: The errors of ``compression(of:for:)``.
    func mustDeflate(
        _ request: SocketRequest,
        for peer: SocketResponse.Origin?
    ) throws(SocketError) -> CompressionPolicy? {
        guard request.body.readableBytes > BodyWork.longestDeflatedHere,
            let policy = try self.compression(of: request, for: peer),
            request.body.readableBytes >= policy.minimumLength
        else { return nil }
        return policy
    }

    // MARK: Envelopes

    /// Puts a request into its envelope.
    ///
    /// - Parameters:
    ///   - deflated: The result of compressing its body on another thread; nil if that was not done.
    ///   - context: The context of the call's span, for the server; nil without one.
    ///   - peer: The connection that it is sent on.
    ///   - endpoint: The server that the client is connected to.
    /// - Throws: `featureNotAgreed` if it requires a feature that the connection does not have; `timeout` if its
    ///   deadline has passed; `invalidArgument` if its metadata is too long.
    func seal(
        _ request: SocketRequest,
        deflated: Deflated?,
        context: ServiceContext?,
        for peer: SocketResponse.Origin?,
        now: NIODeadline,
        endpoint: @autoclosure () -> Endpoint?
    ) throws(SocketError) -> Envelope.Sealed {
        if request.options.isPlain, peer?.agreement == nil { return (request.type, request.body) }
        let compression = try self.compression(of: request, for: peer)
        guard request.options.asksForMetadata || context != nil else {
            guard compression != nil else { return (request.type, request.body) }
            return try self.seal(request, nil, compression: compression, deflated: deflated)
        }
        try self.requireMetadata(for: request, of: peer)
        guard peer?.agreement?.has(.metadata) == true else {
            return try self.seal(request, nil, compression: compression, deflated: deflated)
        }
        var metadata = WireMetadata()
        metadata.values = request.options.metadata
        if let deadline = request.options.deadline {
            metadata.deadline = try self.milliseconds(to: deadline, of: request, now: now, endpoint: endpoint())
        }
        if let key = request.options.idempotencyKey { metadata.idempotencyKey = key }
        if let traced = self.traced(metadata, context),
            let sealed = try? self.seal(request, traced, compression: compression, deflated: deflated)
        {
            return sealed
        }
        return try self.seal(
            request,
            request.options.asksForMetadata ? metadata : nil,
            compression: compression,
            deflated: deflated
        )
    }

    private func seal(
        _ request: SocketRequest,
        _ metadata: WireMetadata?,
        compression: CompressionPolicy?,
        deflated: Deflated?
    ) throws(SocketError) -> Envelope.Sealed {
        do throws(EnvelopeError) {
            if compression != nil, case .smaller(let body) = deflated {
                return try Envelope.seal(type: request.type, deflated: body, metadata: metadata)
            }
            return try Envelope.seal(
                type: request.type,
                body: request.body,
                metadata: metadata,
                // A body that did not become smaller is not compressed again.
                compression: deflated == nil ? compression : nil
            )
        } catch {
            throw Self.invalid(error)
        }
    }

    private func requireMetadata(
        for request: SocketRequest,
        of peer: SocketResponse.Origin?
    ) throws(SocketError) {
        if !request.options.metadata.isEmpty { try self.require(.metadata, for: "metadata", of: peer) }
        if request.options.deadline != nil { try self.require(.metadata, for: "deadline", of: peer) }
        if request.options.idempotencyKey != nil { try self.require(.idempotency, for: "idempotencyKey", of: peer) }
    }

    private func require(
        _ feature: ProtocolFeature,
        for property: String,
        of peer: SocketResponse.Origin?
    ) throws(SocketError) {
        guard peer?.agreement?.has(feature) != true else { return }
        let endpoint = peer?.endpoint ?? Endpoint(host: "", port: 0)
        let why: String
        if let hello = self.hello {
            why =
                peer?.agreement == nil
                ? "it answered hello with an error, as servers without hello do"
                : hello.features.contains(feature)
                    ? "it did not accept that"
                    : "hello did not offer that (HelloPolicy.features)"
        } else {
            why = "hello is off (SocketClient.Configuration.hello)"
        }
        throw SocketError(
            .featureNotAgreed,
            message: """
                SocketRequest.\(property) takes the feature \(feature), which was not agreed on with \
                \(endpoint): \(why)
                """,
            endpoint: endpoint
        )
    }

    // MARK: Tracing

    /// The metadata with the context of the call's span added; nil if there is nothing to add.
    private func traced(_ metadata: WireMetadata, _ context: ServiceContext?) -> WireMetadata? {
        guard let tracer = self.tracer, let context else { return nil }
        var carried: [String: String] = [:]
        tracer.inject(context, into: &carried, using: MetadataInjector())
        // Values set by the caller take precedence.
        carried = carried.filter { metadata.values[$0.key] == nil && Self.isName($0.key) }
        guard !carried.isEmpty else { return nil }
        var traced = metadata
        traced.values.merge(carried) { own, _ in own }
        return traced
    }

    private static func isName(_ name: String) -> Bool {
        (1...Self.maximumNameLength).contains(name.utf8.count) && name.utf8.allSatisfy(Self.nameBytes.contains)
    }

    private struct MetadataInjector: Injector {
        func inject(_ value: String, forKey key: String, into carrier: inout [String: String]) {
            carrier[key.lowercased()] = value
        }
    }
}
