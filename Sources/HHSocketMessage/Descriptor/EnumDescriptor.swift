// SPDX-License-Identifier: Apache-2.0
import Atomics

/// An enumeration, as a `.proto` declares it.
public final class EnumDescriptor: Sendable {
    /// One value of an enumeration.
    public struct Value: Sendable, Hashable {
        /// The name in the `.proto`.
        public let name: String
        public let number: Int32

        package init(name: String, number: Int32) {
            self.name = name
            self.number = number
        }
    }

    /// The full name, such as `chat.Kind`.
    public let name: String
    /// Whether only the declared numbers are values, as in proto2. Others become unknown fields.
    package let isClosed: Bool
    private let content: DescriptorContent<EnumContent>

    /// - Parameters:
    ///   - name: The full name, such as `chat.Kind`.
    ///   - values: The values in the order of their declaration; several may have the same number.
    ///   - isClosed: Whether only the declared numbers are values, as in proto2; false by default.
    package init(_ name: String, _ values: [Value], isClosed: Bool = false) {
        self.name = name
        self.isClosed = isClosed
        self.content = DescriptorContent { EnumContent(values) }
    }

    /// - Parameters:
    ///   - name: The full name, such as `chat.Kind`.
    ///   - declaration: A line for each value, with its number and its name. Used by generated code.
    ///   - isClosed: Whether only the declared numbers are values, as in proto2; false by default.
    public init(_ name: String, _ declaration: StaticString, isClosed: Bool = false) {
        self.name = name
        self.isClosed = isClosed
        self.content = DescriptorContent { EnumContent(DescriptorDeclaration.values(declaration, of: name)) }
    }

    /// The values in the order of their declaration; several may have the same number.
    public var values: [Value] { self.content.value.values }

    /// Returns the number of a value.
    package func number(ofName name: String) -> Int32? { self.content.value.numbers[name] }

    /// Returns the first name of a number; nil if the enumeration does not declare it.
    package func name(ofNumber number: Int32) -> String? { self.content.value.names[number] }
}

/// The values of an enumeration, by name and by number.
final class EnumContent: AtomicReference, Sendable {
    let values: [EnumDescriptor.Value]
    let numbers: [String: Int32]
    let names: [Int32: String]

    init(_ values: [EnumDescriptor.Value]) {
        self.values = values
        self.numbers = Dictionary(values.map { ($0.name, $0.number) }, uniquingKeysWith: { first, _ in first })
        self.names = Dictionary(values.map { ($0.number, $0.name) }, uniquingKeysWith: { first, _ in first })
    }
}

/// The content of a descriptor, made on first use: most programs never use it.
final class DescriptorContent<Content: AtomicReference & Sendable>: Sendable {
    private let reference = ManagedAtomicLazyReference<Content>()
    private let make: @Sendable () -> Content

    init(_ make: @escaping @Sendable () -> Content) {
        self.make = make
    }

    var value: Content {
        // Several threads may make it at once; the first one's is kept.
        self.reference.load() ?? self.reference.storeIfNilThenLoad(self.make())
    }
}
