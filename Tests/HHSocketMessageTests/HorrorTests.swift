// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage
import HorrorSamples
import Testing

/// Messages, fields and services with names that mean something else in Swift: that they compile is half of the test.
/// Types of the standard library are qualified here, since the module's types hide them.
@Suite struct HorrorTests {
    private func survives<Message: ProtobufMessage>(_ message: Message) throws -> Swift.Bool {
        try Message(serializedBytes: message.serializedBytes()) == message
    }

    @Test func typesWithTheNamesOfSwiftsAreEncodedAndDecoded() throws {
        #expect(
            try self.survives(
                TypeMessage.with {
                    $0.error.text = "text"
                    $0.result.result = .init_p("init")
                }
            )
        )
        for value: Result.OneOf_Result in [
            .type(.init()), .error(.init()), .none(true), .some(7), .init_p("i"), .self_p("s"), .hash(.init([1])),
        ] {
            #expect(try self.survives(Result.with { $0.result = value }))
        }
        #expect(try self.survives(StringMessage.with { $0.strings["a"] = .with { $0.string = "b" } }))
        #expect(try self.survives(Optional.with { $0.optional.isSet = true }))
        #expect(try self.survives(Array.with { $0.array = [.init(), .init()] }))
        #expect(try self.survives(SwiftMessage.with { $0.foundations = [.init()] }))
        #expect(try self.survives(DataMessage.with { $0.data = .init([1, 2]) }))
    }

    @Test func casesWithTheNamesOfMembersHaveTheirNumbers() {
        #expect(Dictionary.allCases.count == 14)
        for value in Dictionary.allCases { #expect(Dictionary(rawValue: value.rawValue) == value) }
        #expect(Dictionary.enumDescriptor_.rawValue == 5 && Dictionary.typeDescriptor_.rawValue == 6)
        #expect(Dictionary.enumDescriptor.name == "horrors.Dictionary")
    }

    @Test func aNestedTypeAndAPropertyMayHaveOneName() throws {
        let message = Nested.with {
            $0.note_p.text = "note"
            $0.draft_p = "draft"
            $0.chosenNote.text = "chosen"
            $0.kind_p = .kindOther
            $0.type = .init()
            $0.string = .init()
            $0.bytes = .init([1])
            $0.notes[1] = .with { $0.text = "one" }
            $0.hashables = [.init()]
        }
        #expect(message.hasNote_p && message.hasDraft_p && message.hasKind_p)
        #expect(try self.survives(message))
        #expect(try self.survives(Nested.with { $0.chosen_p = .init() }))
    }

    @Test func fieldsWithTheNamesOfMembersAreEncodedAndDecoded() throws {
        let fields = Fields.with {
            $0.self_p = "1"
            $0.init_p = "2"
            $0.description_p = "3"
            $0.hashValue_p = "4"
            $0.unknownFields_p = "5"
            $0.heap = "6"
            $0.messageDescriptor = "7"
            $0.decode = "8"
            $0.encode = "9"
            $0.checkRequired_p = "10"
            $0.serializedBytes = .init([11])
            $0.merge = "12"
            $0.isInitialized_p = true
            $0.with = "14"
            $0.decoder = "15"
            $0.encoder = "16"
        }
        #expect(try self.survives(fields))
        let bytes: [Swift.UInt8] = try fields.serializedBytes()
        // A message with such fields on the heap.
        let heap = try HeapFields(serializedBytes: bytes)
        #expect(heap.heap == "6" && heap.decode == "8" && heap.checkRequired_p == "10" && heap.encoder == "16")
        #expect(try heap.serializedBytes() as [Swift.UInt8] == bytes)
        #expect(try self.survives(HeapFields.with { $0.again.again.tag = "17" }))
        #expect(HeapFields.messageDescriptor.name == "horrors.HeapFields")
    }

    @Test func requiredFieldsWithTheNamesOfMembersAreChecked() throws {
        var message = Horrors2_Required.with {
            $0.decode = "1"
            $0.encode = "2"
            $0.checkRequired_p = "3"
        }
        #expect(try self.survives(message))
        message.missing = Horrors2_Required()
        #expect(throws: MessageError.self) { _ = try message.serializedBytes() as [Swift.UInt8] }
        message.clearMissing()
        message.throws = .try(Horrors2_Required())
        #expect(throws: MessageError.self) { _ = try message.serializedBytes() as [Swift.UInt8] }
    }

    @Test func servicesWithTheNamesOfTheirPartsAreDescribed() {
        #expect(Client.Methods.client.name == "horrors.Client/Client")
        #expect(Methods.Methods.methods.type == 3010)
        #expect(MockClient.Methods.mockClient.type == 3020)
        #expect(ClientProtocol.Methods.clientProtocol.type == 3030)
        #expect(ServiceProtocol.Methods.serviceProtocol.type == 3040)
        #expect(HandlerService.serviceName == "horrors.Handler")
    }
}
