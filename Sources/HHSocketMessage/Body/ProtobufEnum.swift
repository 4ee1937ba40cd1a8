/// An enumeration that `protoc-gen-hhsocket` has generated, as swift-protobuf spells it.
///
/// One of proto3 is open: a number that it does not know is `.UNRECOGNIZED(number)`. One of proto2 is closed: such a
/// number goes to the message's unknown fields.
public protocol ProtobufEnum: RawRepresentable, CaseIterable, FieldValue where RawValue == Int {
    /// The first case that the `.proto` declares, which is a field's default.
    init()
}
