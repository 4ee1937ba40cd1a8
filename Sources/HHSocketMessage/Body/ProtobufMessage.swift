/// A message that `protoc-gen-hhsocket` has generated.
///
/// Spelled as swift-protobuf does, where both have the same thing:
/// ```swift
/// var note = Chat_Note()
/// note.text = "hello"
/// let bytes: [UInt8] = try note.serializedBytes()
/// let same = try Chat_Note(serializedBytes: bytes)
/// ```
/// What lies between the message and its bytes is a *record*: memory that ``messageDescriptor`` lays out as
/// libprotobuf-c has it. The generated code moves values between the message and its record, and an engine,
/// libprotobuf-c where it is there and a portable one elsewhere, turns records into bytes and back.
public protocol ProtobufMessage: MessageBody, Hashable {
    /// Its fields and their numbers.
    static var messageDescriptor: MessageDescriptor { get }

    /// A message in which no field has a value.
    init()
    /// Takes the values out of a record. Called by the runtime.
    init(record: RecordReader)
    /// Puts the values into a record that is all zeros. Called by the runtime.
    ///
    /// - Throws: ``MessageError``: a required field is missing, or the message lies too deep within itself.
    func write(to record: RecordWriter) throws(MessageError)
}

extension ProtobufMessage {
    @inlinable
    public static var protoMessageName: String { Self.messageDescriptor.name }

    /// Reads a message.
    ///
    /// - Parameter bytes: The whole message; less than 2 GiB.
    /// - Throws: ``MessageError``: the bytes are no such message, or messages lie in it more than 100 deep.
    @inlinable
    public init(serializedBytes bytes: some Collection<UInt8>) throws(MessageError) {
        let read: Result<Self, MessageError>? = bytes.withContiguousStorageIfAvailable { bytes in
            MessageCodec.read(UnsafeRawBufferPointer(bytes))
        }
        if let read {
            self = try read.get()
        } else {
            try self.init(serializedBytes: Array(bytes))
        }
    }

    /// The message's bytes.
    ///
    /// - Throws: ``MessageError``: a required field is missing, messages lie in it more than 100 deep, or it would take
    ///   2 GiB or more.
    @inlinable
    public func serializedBytes() throws(MessageError) -> [UInt8] {
        try MessageCodec.write(self) { Array($0) }.get()
    }

    @inlinable
    public init(messageBytes: UnsafeRawBufferPointer) throws {
        self = try MessageCodec.read(messageBytes).get()
    }

    @inlinable
    public func withMessageBytes<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) throws -> Result {
        let written = MessageCodec.write(self) { bytes in Swift.Result { try body(bytes) } }
        return try written.get().get()
    }

    @inlinable
    public func withCanonicalMessageBytes<Result>(
        _ body: (UnsafeRawBufferPointer) throws -> Result
    ) throws -> Result {
        let written = MessageCodec.write(self, isCanonical: true) { bytes in Swift.Result { try body(bytes) } }
        return try written.get().get()
    }
}
