// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import Tracing

/// Features of requests that hello agrees on.
extension ClientCore {
    private static let nameBytes = Set("abcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_|~".utf8)
    private static let maximumNameLength = 128

    /// Checks the metadata, the idempotency key and the deadline of a request.
    ///
    /// - Throws: `invalidArgument` if a name is invalid or a limit exceeded; `timeout` if the deadline has passed.
    func checkMetadata(of request: SocketRequest, in turn: inout Turn) throws(SocketError) {
        guard request.options.metadata.count <= Envelope.maximumValues else {
            throw Self.invalid(
                "\(request.options.metadata.count) values of metadata are more than \(Envelope.maximumValues)"
            )
        }
        for name in request.options.metadata.keys {
            guard Self.isName(name) else {
                throw Self.invalid(
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
            throw Self.invalid(
                "an idempotencyKey has 1 to \(Envelope.maximumKeyLength) bytes; this one has \(key.utf8.count)"
            )
        }
        if let deadline = request.options.deadline { _ = try self.milliseconds(to: deadline, of: request, in: &turn) }
    }

    private static func invalid(_ message: String) -> SocketError { SocketError(.invalidArgument, message: message) }

    private static func invalid(_ error: EnvelopeError) -> SocketError {
        Self.invalid("the request cannot be sent: \(error) (SocketRequest.metadata)")
    }

    /// The milliseconds left until `deadline`, rounded up.
    private func milliseconds(to deadline: NIODeadline, of request: SocketRequest, in turn: inout Turn)
        throws(SocketError) -> UInt64
    {
        let left = (deadline - turn.now).nanoseconds
        guard left > 0 else {
            throw SocketError(
                .timeout,
                message: """
                    the deadline of the request of type \(request.type) passed \(Duration(turn.now - deadline)) before \
                    it could leave (SocketRequest.deadline)
                    """,
                endpoint: self.driver.currentEndpoint
            )
        }
        return UInt64(left / 1_000_000) + (left % 1_000_000 > 0 ? 1 : 0)
    }

    /// Returns the envelope of a request for the current connection.
    ///
    /// - Throws: `featureNotAgreed` if it requires a feature that the connection does not have; `timeout` if its
    ///   deadline has passed; `invalidArgument` if its metadata is too long.
    func seal(_ request: SocketRequest, of task: SocketTask, in turn: inout Turn) throws(SocketError) -> Envelope.Sealed
    {
        let agreement = self.connection?.agreement
        if request.options.isPlain, agreement == nil { return (request.type, request.body) }
        let compression = try self.compression(of: request, agreement)
        guard request.options.asksForMetadata || task.flight.span != nil else {
            guard compression != nil else { return (request.type, request.body) }
            return try self.seal(request, nil, compression, task.flight.deflated, in: &turn)
        }
        let deflated = task.flight.deflated
        try self.requireMetadata(for: request, agreement)
        guard agreement?.has(.metadata) == true else {
            return try self.seal(request, nil, compression, deflated, in: &turn)
        }
        var metadata = WireMetadata()
        metadata.values = request.options.metadata
        if let deadline = request.options.deadline {
            metadata.deadline = try self.milliseconds(to: deadline, of: request, in: &turn)
        }
        if let key = request.options.idempotencyKey { metadata.idempotencyKey = key }
        if let traced = self.traced(metadata, task),
            let sealed = try? self.seal(request, traced, compression, deflated, in: &turn)
        {
            return sealed
        }
        return try self.seal(
            request,
            request.options.asksForMetadata ? metadata : nil,
            compression,
            deflated,
            in: &turn
        )
    }

    private func seal(
        _ request: SocketRequest,
        _ metadata: WireMetadata?,
        _ compression: CompressionPolicy?,
        _ deflated: TaskFlight.Deflated?,
        in turn: inout Turn
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

    /// The policy for compressing the request's body; nil if it is sent uncompressed.
    func compression(
        of request: SocketRequest,
        _ agreement: Agreement?
    ) throws(SocketError) -> CompressionPolicy? {
        let policy = self.configuration.compression
        switch request.options.compresses {
        case false?:
            return nil
        case true?:
            try self.require(.compression, for: "compresses", agreement)
            // A body that is too large uncompressed would be too large for the server once decompressed.
            guard request.body.readableBytes <= self.configuration.socket.maximumPayloadLength else { return nil }
            return CompressionPolicy(minimumLength: 0, level: (policy ?? CompressionPolicy()).level)
        case nil:
            guard let policy, request.body.readableBytes >= policy.minimumLength,
                request.body.readableBytes <= self.configuration.socket.maximumPayloadLength,
                agreement?.has(.compression) == true
            else { return nil }
            return policy
        }
    }

    private func requireMetadata(for request: SocketRequest, _ agreement: Agreement?) throws(SocketError) {
        if !request.options.metadata.isEmpty { try self.require(.metadata, for: "metadata", agreement) }
        if request.options.deadline != nil { try self.require(.metadata, for: "deadline", agreement) }
        if request.options.idempotencyKey != nil { try self.require(.idempotency, for: "idempotencyKey", agreement) }
    }

    private func require(
        _ feature: ProtocolFeature,
        for property: String,
        _ agreement: Agreement?
    ) throws(SocketError) {
        guard agreement?.has(feature) != true else { return }
        let endpoint = self.endpoint(of: self.hot.connectionID)
        let why: String
        if let hello = self.configuration.hello {
            why =
                agreement == nil
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
    private func traced(_ metadata: WireMetadata, _ task: SocketTask) -> WireMetadata? {
        guard let tracer = self.traits.tracer, let span = task.flight.span else { return nil }
        var context: [String: String] = [:]
        tracer.inject(span.context, into: &context, using: MetadataInjector())
        // Values set by the caller take precedence.
        context = context.filter { metadata.values[$0.key] == nil && Self.isName($0.key) }
        guard !context.isEmpty else { return nil }
        var traced = metadata
        traced.values.merge(context) { own, _ in own }
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
