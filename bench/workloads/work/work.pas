program work;
{$mode objfpc}{$H+}
uses
  SysUtils, Classes, Math;

type
  EUnlucky = class(Exception);

function Fib(n: Integer): Integer;
begin
  if n < 2 then Result := n else Result := Fib(n - 1) + Fib(n - 2);
end;

function ByLength(list: TStringList; a, b: Integer): Integer;
begin
  Result := Length(list[a]) - Length(list[b]);
  if Result = 0 then Result := CompareStr(list[a], list[b]);
end;

procedure Sort(round: Integer);
var
  words: TStringList;
  i: Integer;
begin
  words := TStringList.Create;
  try
    for i := 1 to 2000 do
      words.Add(Format('word%d-%s', [(i * 7919 + round) mod 1000, FloatToStr(Sqrt(i))]));
    words.CustomSort(@ByLength);
    if round mod 2 = 0 then raise EUnlucky.Create('even');
  finally
    words.Free;
  end;
end;

var
  till: QWord;
  round, sum: Integer;
begin
  till := GetTickCount64 + 4000;
  round := 0;
  sum := 0;
  while GetTickCount64 < till do
  begin
    Inc(round);
    try
      Sort(round);
    except
      on EUnlucky do Inc(sum);
    end;
    sum := (sum + Fib(18)) mod 1000;
  end;
  WriteLn(sum);
end.
