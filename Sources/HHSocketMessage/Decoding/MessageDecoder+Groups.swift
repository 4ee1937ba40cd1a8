// SPDX-License-Identifier: Apache-2.0
/// Messages that two tags delimit: groups of proto2, and delimited messages of editions.
///
/// The fields of a group are read by the code that reads those of any message. No message declares its end tag, so that
/// tag reaches ``unknown(_:_:)``, and messages without groups have no cost.
@_documentation(visibility: internal)
extension MessageDecoder {
    /// The group that is being read.
    @usableFromInline
    struct OpenGroup {
        /// The tag at its end; 0 if none is open.
        @usableFromInline var end: UInt32
        /// The number of levels left in the group itself, not in a message within it.
        @usableFromInline var levels: Int
        @usableFromInline var isClosed = false

        @inlinable
        init(end: UInt32, levels: Int) {
            self.end = end
            self.levels = levels
        }
    }

    /// Reads a group, and merges it with an existing one.
    ///
    /// - Parameter tag: The tag at its beginning.
    @inlinable
    public mutating func group<Message: ProtobufMessage>(_ message: inout Message?, _ tag: UInt32) {
        guard let outer = self.openGroup(tag) else { return }
        if message == nil { message = Message() }
        message?.decode(from: &self)
        self.closeGroup(outer, Message.messageDescriptor)
    }

    /// Reads an element of a repeated group.
    @inlinable
    public mutating func groups<Message: ProtobufMessage>(_ messages: inout [Message], _ tag: UInt32) {
        guard let outer = self.openGroup(tag) else { return }
        self.charge(MemoryLayout<Message>.stride)
        messages.append(Message())
        messages[messages.count - 1].decode(from: &self)
        self.closeGroup(outer, Message.messageDescriptor)
    }

    /// The state of the group and the message that enclose a group.
    @usableFromInline typealias AroundGroup = (group: OpenGroup, end: UnsafePointer<UInt8>)

    /// - Returns: The state of the enclosing ones; nil after an error.
    @usableFromInline
    mutating func openGroup(_ tag: UInt32) -> AroundGroup? {
        if self.hasFailed { return nil }
        guard self.levels > 0 else {
            self.failForDepth()
            return nil
        }
        let outer = (self.group, self.end)
        self.levels -= 1
        self.group = OpenGroup(end: tag + 1, levels: self.levels)
        return outer
    }

    @usableFromInline
    mutating func closeGroup(_ outer: AroundGroup, _ descriptor: @autoclosure () -> MessageDescriptor) {
        if !self.hasFailed, !self.group.isClosed { self.fail(.truncated, at: self.cursor) }
        if self.hasFailed { self.attribute(to: descriptor()) }
        self.levels += 1
        (self.group, self.end) = outer
        if self.hasFailed { self.cursor = self.end }
    }

    /// Ends the group that is being read, if this is the tag at its end.
    @usableFromInline
    @inline(never)
    mutating func endGroup(_ tag: UInt32) -> Bool {
        guard tag == self.group.end, self.levels == self.group.levels, !self.group.isClosed else { return false }
        self.group.isClosed = true
        // There are no more fields, as at the end of a message.
        self.end = self.cursor
        return true
    }
}
