with Ada.Calendar; use Ada.Calendar;
with Ada.Containers.Indefinite_Ordered_Maps;
with Ada.Containers.Vectors;
with Ada.Text_IO;

procedure Work is
   package Maps is new Ada.Containers.Indefinite_Ordered_Maps (String, Integer);
   package Vectors is new Ada.Containers.Vectors (Positive, Long_Float);
   package Sorting is new Vectors.Generic_Sorting;

   Unlucky : exception;

   function Fib (N : Integer) return Integer is
     (if N < 2 then N else Fib (N - 1) + Fib (N - 2));

   procedure Count (Words : in out Maps.Map; Round : Integer) is
   begin
      for I in 1 .. 2000 loop
         declare
            Word : constant String := "word" & Integer'Image ((I * 7919 + Round) mod 1000);
         begin
            if Words.Contains (Word) then
               Words.Replace (Word, Words.Element (Word) + 1);
            else
               Words.Insert (Word, 1);
            end if;
            if I mod 500 = 0 then
               raise Unlucky;
            end if;
         exception
            when Unlucky => null;
         end;
      end loop;
   end Count;

   procedure Sort (Round : Integer) is
      Numbers : Vectors.Vector;
   begin
      for I in 1 .. 2000 loop
         Numbers.Append (Long_Float (I * 7919 mod (1000 + Round)));
      end loop;
      Sorting.Sort (Numbers);
   end Sort;

   task type Worker;

   task body Worker is
      Until_Time : constant Time := Clock + 2.0;
      Round      : Integer := 0;
      Sum        : Integer := 0;
      Words      : Maps.Map;
   begin
      while Clock < Until_Time loop
         Round := Round + 1;
         Count (Words, Round);
         Sort (Round);
         Sum := Sum + Fib (18) mod 7;
      end loop;
      Ada.Text_IO.Put_Line (Integer'Image (Sum));
   end Worker;

   Workers : array (1 .. 2) of Worker;
   pragma Unreferenced (Workers);
begin
   null;
end Work;
