// SPDX-License-Identifier: Apache-2.0
extension Optional where Wrapped: ProtobufMessage {
    /// The message, or one without fields, which is stored when it is changed. Used by generated code.
    @inlinable
    @_documentation(visibility: internal)
    public subscript(orDefault default: @autoclosure () -> Wrapped) -> Wrapped {
        get { self ?? `default`() }
        _modify {
            // Moved, so that it has only one reference while it is changed.
            var message = self.take() ?? `default`()
            defer { self = message }
            yield &message
        }
    }
}
