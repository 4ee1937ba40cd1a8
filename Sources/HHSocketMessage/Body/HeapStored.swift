// SPDX-License-Identifier: Apache-2.0
/// The fields of a message that are stored separately, since there are many of them or the message is recursive: such a
/// message takes one word, and is copied with one retain.
///
/// Used by generated code. Copies share the fields until one of them changes; a message without fields has no memory.
@frozen
@_documentation(visibility: internal)
public struct HeapStored<Fields: MessageFields>: Hashable, Sendable {
    @usableFromInline var box: Box?

    @inlinable
    public init() { self.box = nil }

    @inlinable
    public var fields: Fields {
        _read {
            if let box = self.box {
                yield box.fields
            } else {
                yield Fields()
            }
        }
        _modify {
            self.makeUnique()
            // It was set above if it was missing.
            yield &self.box.unsafelyUnwrapped.fields
        }
    }

    /// Makes the box the only reference to the fields, which are about to be changed.
    ///
    /// Never inlined: every setter of a message calls it, so its code would be repeated in each.
    @inlinable
    @inline(never)
    mutating func makeUnique() {
        // In two steps, since the box must have only one reference while it is changed.
        if self.box == nil {
            self.box = Box(Fields())
        } else if !isKnownUniquelyReferenced(&self.box), let shared = self.box {
            self.box = Box(shared.fields)
        }
    }

    @inlinable
    public static func == (one: Self, other: Self) -> Bool {
        one.box === other.box || one.fields == other.fields
    }

    @inlinable
    public func hash(into hasher: inout Hasher) { self.fields.hash(into: &hasher) }

    @usableFromInline
    final class Box: @unchecked Sendable {
        // Proof of Sendable: the fields are changed only through a `HeapStored` that has the one reference to the box,
        // so that no other code can read them.
        @usableFromInline var fields: Fields

        @inlinable
        init(_ fields: Fields) { self.fields = fields }
    }
}

extension HeapStored: CustomStringConvertible {
    /// The description of the fields.
    public var description: String { "\(self.fields)" }
}

/// The fields of a message that keeps them on the heap.
@_documentation(visibility: internal)
public protocol MessageFields: Hashable, Sendable {
    init()
    mutating func decode(from decoder: inout MessageDecoder)
    func encode(to encoder: inout MessageEncoder)
}
